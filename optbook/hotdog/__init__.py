"""The sample system under optimisation: a detector that counts hot dogs. It knows nothing of optbook."""
