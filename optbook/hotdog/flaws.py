"""Why `Recipe.first()` is slow: each flaw, its fields of the recipe, the method's row that cures it.

This spoils the chapters. Every flaw is one that people really had; `report` is where one of them said so.
The rows are those of the method: C0 better algorithms and less work, C1 parallelise (vectorise, batch,
threads, processes), C2 cache, C3 call C, K1 no idle hardware, K3 asynchronous, M1 the smallest type that will
do, M4 nothing large kept in scope.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Flaw:
    """`fields`: what to replace in the recipe; `report`: a public thread of someone who had it."""

    what: str
    where: str
    fields: tuple[str, ...]
    row: str
    report: str
    title: str


FLAWS = (
    Flaw(
        what="Every picture is decoded from its JPEG again in every epoch.",
        where="dataset.HotdogDataset.decoded_picture",
        fields=("keep_decoded", "decode"),
        row="C2",
        report="https://github.com/BIMCV-CSUSP/BIMCV-COVID-19/issues/6",
        title="Slow DataGenerator",
    ),
    Flaw(
        what="Pictures are changed at full size and shrunk afterwards: most of that work is thrown away.",
        where="pixels.decode_full_size, before augment.augment_step_by_step",
        fields=("decode",),
        row="C0",
        report="https://github.com/torchgeo/torchgeo/pull/3539",
        title="[FIX] change augmentation order to improve performance in selected datamodules",
    ),
    Flaw(
        what="Dividing bytes by 255.0 makes float64, and all later work on pixels stays so: 8 bytes for 1.",
        where="pixels.decode_full_size, pixels.normalise",
        fields=("decode", "augment", "normalise"),
        row="M1",
        report="https://github.com/mistralai/mistral-common/issues/316",
        title="[BUG] Image normalization promotes float32 inputs to float64",
    ),
    Flaw(
        what="Rotation and scaling each resample the whole picture; one warp by their product would do.",
        where="augment.augment_step_by_step",
        fields=("augment",),
        row="C0",
        report="https://github.com/voxelmorph/voxelmorph/issues/157",
        title="Concatenating affine and warp with `warp.py`",
    ),
    Flaw(
        what="The warp is written in NumPy, with a temporary array a term; image libraries do it in C.",
        where="augment.warp",
        fields=("augment",),
        row="C3",
        report="https://github.com/albumentations-team/albumentations/pull/6",
        title="Use cv2.warpAffine in shift_scale_rotate",
    ),
    Flaw(
        what="Noise is drawn in float64 for every pixel of the full-size picture.",
        where="augment.add_noise",
        fields=("augment",),
        row="M1",
        report="https://github.com/albumentations-team/albumentations/issues/2295",
        title="[Speed Up] GaussianNoise",
    ),
    Flaw(
        what="Constants (the warp's mesh grid, mean and deviation) are made anew for every picture.",
        where="augment.warp, pixels.normalise",
        fields=("augment", "normalise"),
        row="C2",
        report="https://github.com/Lasagne/Lasagne/pull/602",
        title="Increased speed of thin plate spline transformer layer dramatically",
    ),
    Flaw(
        what="Pixels go from floats to bytes and back to floats, only because Pillow resizes bytes.",
        where="pixels.resize_through_bytes",
        fields=("resize", "decode"),
        row="C0",
        report="https://github.com/pytorch/vision/issues/8669",
        title="performance degradation in to_pil_image after v0.17",
    ),
    Flaw(
        what="Target maps are drawn by Python loops over boxes, rows and cells.",
        where="targets.draw_cell_by_cell",
        fields=("targets",),
        row="C1",
        report="https://github.com/ildoonet/tf-pose-estimation/issues/272",
        title="Speed up data preprocessing?",
    ),
    Flaw(
        what="Pictures are prepared in the training process: while one side works, the other waits.",
        where="loaders.torch_loader",
        fields=("make_loader",),
        row="K1",
        report="https://github.com/fengzhang427/LRD/issues/6",
        title="why set num_workers=0?",
    ),
    Flaw(
        what="float64 from NumPy met a float32 network, and the network was made float64 to fit.",
        where="Recipe.first",
        fields=("dtype",),
        row="M1",
        report="https://github.com/bennyguo/instant-nsr-pl/issues/66",
        title="RuntimeError: expected scalar type Float but found Double",
    ),
    Flaw(
        what="Anomaly detection, switched on to find a bug, was left on: operations note who called them.",
        where="training.step_by_step",
        fields=("anomaly_detection",),
        row="C0",
        report="https://github.com/yenchenlin/nerf-pytorch/issues/42",
        title="torch.autograd.set_detect_anomaly(True) seems slow down the training",
    ),
    Flaw(
        what="Every step reads its losses, sums up the mean from the first step on, and prints.",
        where="training.step_by_step, training.print_every_step",
        fields=("step", "log"),
        row="K3",
        report="https://github.com/jolibrain/joliGEN/pull/374",
        title="feat: sync loss only when printing",
    ),
    Flaw(
        what="The history keeps each step's loss as a tensor, and with it the graph that made it.",
        where="training.remember_tensor",
        fields=("remember",),
        row="M4",
        report="https://github.com/BatsResearch/labelmodels/issues/4",
        title="Memory leak in training loop",
    ),
    Flaw(
        what="Hot dogs are looked for in one picture at a time.",
        where="detect.detect",
        fields=("inference_batch_size",),
        row="C1",
        report="https://github.com/lufficc/SSD/issues/27",
        title="Inference speed for batch size 1",
    ),
    Flaw(
        what="Gradients are prepared for although nothing will be learnt.",
        where="detect.detect",
        fields=("inference_mode",),
        row="C0",
        report="https://github.com/chrischoy/FCGF/issues/15",
        title="validation torch.no_grad()",
    ),
    Flaw(
        what="Every cell of the heat map is compared in a Python loop, one tensor element after the other.",
        where="detect.every_hot_cell",
        fields=("find",),
        row="C1",
        report="https://github.com/Lihua-Jing/PAD/issues/4",
        title="Process speed is slow",
    ),
    Flaw(
        what="Overlapping boxes are suppressed by Python loops over pairs, on tensors of one number.",
        where="detect.suppress_one_by_one",
        fields=("suppress", "find"),
        row="C1",
        report="https://github.com/experiencor/keras-yolo3/issues/177",
        title="Non-Max-Suppression is extremely SLOW up to 5-7 seconds !",
    ),
)
