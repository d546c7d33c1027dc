# Every target sets up .venv when needed (see dev.py). Extra arguments: make test ARGS="-k lease -x"
# make postgres ARGS="14 17" tests the PostgreSQL store on these versions; without, on 14 to 18.
# make simulate SEEDS=20000 runs so many seeds; ARGS="--start 41 --seeds 1 --trace" tells one story.
# make torture makes the long crash runs; ARGS="sqlite --jobs 20000 --kills 50 --pauses 20" a shorter one.
PYTHON ?= python3
ARGS ?=

.PHONY: demo test postgres check bench mutants simulate fuzz torture conformance sync docs clean

demo test postgres check bench mutants simulate fuzz torture conformance sync docs:
	@$(PYTHON) dev.py $@ $(ARGS)

clean:
	rm -rf .venv .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache htmlcov dist build site
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
