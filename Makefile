# Everything here is a call of Python, pip or `python -m optbook`; README.md has the same for Windows.
#   make lab PYTHON=/path/to/python3.12     with another Python than the one found

VENV = .venv
PY = $(VENV)/bin/python
RUN = $(PY) -m
PIP = $(RUN) pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTHONS = $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python)
# An environment holds its own path, so one that was moved with its folder is made anew.
MOVED = $(if $(shell grep -sF '$(CURDIR)/$(VENV)' $(VENV)/bin/activate),,moved)

.DEFAULT_GOAL := help
.PHONY: help lab setup test lint bench clean distclean moved

help:
	@echo "make lab              set up what is needed, open the workbook in JupyterLab;"
	@echo "                      make lab LAB='--no-browser --port 8899' passes options on"
	@echo "make setup            only set up: .venv with pinned libraries and optbook itself"
	@echo "make test             everything that is checked: lint, types, layers, tests, notebooks, browser"
	@echo "make lint             only style, types and layers"
	@echo "make bench [NAME=x]   measure optbook itself"
	@echo "make clean            remove caches and build outputs; make distclean removes .venv too"

lab: setup
	@$(RUN) optbook lab $(LAB)

setup: $(VENV)/.installed-workbook
	@:

# First what may share the machine, two tests at a time, then what needs it to itself. PYTEST='-k name' may
# leave one of the two without tests (status 5).
# Compiled modules are kept, whatever the environment says: hundreds of processes start.
test: export PYTHONDONTWRITEBYTECODE =
test: lint
	@$(RUN) pytest -n 2 --dist worksteal --cov --cov-report= --cov-fail-under=0 $(PYTEST); shared=$$?; \
	$(RUN) pytest --alone --cov --cov-append --cov-report=term $(PYTEST); alone=$$?; \
	case "$$shared $$alone" in "0 0" | "0 5" | "5 0") ;; *) exit 1 ;; esac

lint: $(VENV)/.installed-dev
	@$(RUN) ruff check --quiet .
	@$(RUN) ruff format --quiet --check .
	@$(RUN) mypy --no-error-summary
	@$(VENV)/bin/lint-imports --no-logo

bench: $(VENV)/.installed-bench
	@$(RUN) optbook bench $(NAME)

clean:
	rm -rf build dist artefacts .coverage htmlcov .pytest_cache .mypy_cache .ruff_cache .import_linter_cache *.egg-info
	find . -path ./$(VENV) -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) .jupyter

$(VENV)/.installed-%: pyproject.toml constraints.txt $(MOVED)
	@set -e; for python in $(PYTHONS); do \
	  "$$python" -c '' 2>/dev/null || continue; \
	  seen="$$seen; $$("$$python" -c 'import platform, sys; print("%s is Python %s" % (sys.executable, platform.python_version()))')"; \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || continue; \
	  found="$$python"; break; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "optbook needs Python 3.11 or newer. Looked for $(PYTHONS)$$seen." >&2; \
	  echo "Install it (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python; or python.org)," >&2; \
	  echo "or say where it is: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	if ! "$$found" -c 'import ensurepip, venv' 2>/dev/null; then \
	  version=$$("$$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  echo "$$found has no venv module, which optbook's environment is made with." >&2; \
	  echo "Install it (Debian, Ubuntu: apt install python$$version-venv) and try again." >&2; exit 1; \
	fi; \
	if [ -n "$(MOVED)" ] || ! $(RUN) pip --version >/dev/null 2>&1; then \
	  echo "Making $(VENV) with $$found"; "$$found" -m venv --clear $(VENV); \
	fi
	@echo "Installing optbook and its libraries: a few minutes the first time"
	@echo "(README.md says how to get PyTorch's CPU build on Linux, which is far smaller)"
	@$(PIP) --editable '.[$*]'
	@touch $(VENV)/.installed-workbook $@
