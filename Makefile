PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .venv-peers
BASE ?= HEAD
EXAMPLES ?= 80
# Byte code is kept whatever the shell says: each of the hundreds of processes that tests start would compile dpca anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test crossings formats long clusters looks dist docs peers lint bench cells curves latency graph workers shells eigenfaces flow_snapshots brains genotypes genotypes_benchmark climate_eof one_read one_read_benchmark memory precision claims validation coverage properties crashes mutants faults soak every-file hostile same-bits clean

## demo: make 1 GB of data with a known answer, run on it, check the result
demo: $(VENV)/.report
	$(BIN)/dpca demo

# One thread of BLAS for each of the two processes: more wait for each other in a loop. dpca sets its own where it computes.
## test: lint, types, import direction, tests (eight minutes at most, and one for the installation)
test: $(READY) lint
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not alone and not long and not clusters and not looks"

## crossings: the table of every kind of input and every command, as text, where a warning is an error (two minutes)
crossings: $(READY) $(VENV)/.report
	$(BIN)/python -W error -m tests.crossings

## formats: results, models and unfinished runs as earlier versions wrote them, for the tests: tests/formats/made.tar.xz (five minutes)
formats: $(READY)
	$(BIN)/python -m tests.formats.make

## long: tests that take minutes: memory beside plans, what is killed and resumed, the commands of the README (twenty minutes)
long: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "long and not alone and not clusters and not looks"
	$(BIN)/python -m pytest -m alone

## clusters: runs on a Slurm and on hosts of the tests' own (ten minutes; needs root, slurm-wlm, munge and iproute2)
clusters: $(READY)
	$(BIN)/python -m pytest -m clusters

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## looks: figures of workflows, and reports in a browser (a minute; needs chromium)
looks: $(VENV)/.looks
	$(BIN)/python -m pytest -n 2 -m looks

## peers: derived analyses and weighted EOFs against xeofs, eofs, PyDMD, PySPOD, scanpy, scikit-bio, statsmodels and scikit-learn; genotypes against plink2, smartpca, vcf2zarr and bed-reader; GRIB, references and Icechunk; tables of polars and pyarrow (two minutes, with the installation; needs plink2 and eigensoft)
peers: $(PEERS)/.ready
	DPCA_NEEDS_PEERS=1 $(PEERS)/bin/python -m pytest tests/derived/test_peers.py tests/estimators/test_peers.py tests/methods/test_decomposition_xeofs.py tests/genotypes/test_peers.py tests/sources/test_xarray_files.py tests/estimators/test_base.py::test_tables_with_columns_in_another_order_or_of_other_names_are_refused

## dist: the sdist and the wheel of the last commit, each in an environment of its own, with the newest and the lowest versions of what they need (two minutes)
dist:
	PYTHON=$(PYTHON) .ci/dist

## docs: the API reference from docstrings, in build/docs; a warning is an error (a minute, with the installation)
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html dpca/docs build/docs

## bench: dpca beside its peers and the floor of this machine, case by case (some hours, most of them for those of block Krylov; needs 45 GB of disk)
bench: $(VENV)/.benchmarks
	$(BIN)/python -m workflows.benchmarks.bench configs/benchmarks/*.yaml

## cells: 200,000 cells by 2000 genes, sparse, dpca beside scanpy, the same with fewer values, and 4000 cells by 150,000 peaks (eight minutes; 8 GB of memory, 0.5 GB of disk)
cells: $(VENV)/.benchmarks
	$(BIN)/python -m workflows.benchmarks.cells
	$(BIN)/python -m workflows.benchmarks.cells --depth 0.2
	$(BIN)/python -m workflows.benchmarks.cells --cells 4000 --genes 150000 --depth 0.2

## curves: time and memory against features, samples and workers, as tables and a figure (five minutes; 8 GB of disk)
curves: $(VENV)/.benchmarks
	$(BIN)/python -m workflows.benchmarks.curves

## latency: a run from an object store, with and without 50 ms added to every request (five minutes)
latency: $(READY)
	$(BIN)/python -m workflows.benchmarks.latency

## graph: what reaches a scheduler, of arrays of up to a million chunks (three minutes)
graph: $(READY)
	$(BIN)/python -m workflows.benchmarks.graph

## workers: what a span costs the scheduler and the client of 1,000 workers, which sleep (five minutes; 3 GB of memory)
workers: $(READY)
	$(BIN)/python -m workflows.benchmarks.workers --workers 1000 --spans 2048 --seconds 20
	$(BIN)/python -m workflows.benchmarks.workers --workers 100 --spans 1024 --seconds 4 --late 30 --windows 100 200 400 800

## shells: concentric shells in 100,000 dimensions, by kernels, and a picture of them (a minute; 240 MB of disk)
shells: $(VENV)/.figures
	$(BIN)/python -m workflows.kernels.make dpca-shells
	$(BIN)/dpca run configs/shells.yaml --overwrite
	$(BIN)/python -m workflows.kernels.draw results/shells dpca-shells/labels.npy results/shells.png

## eigenfaces: 400 faces, their components as pictures, and a figure (ten seconds)
eigenfaces: $(VENV)/.figures
	$(BIN)/python -m workflows.eigenfaces.make dpca-faces
	$(BIN)/dpca run configs/eigenfaces.yaml --overwrite
	$(BIN)/python -m workflows.eigenfaces.draw results/eigenfaces dpca-faces/faces.zarr results/eigenfaces.png

## flow_snapshots: POD of the wake of a cylinder, and a figure (ten seconds; 70 MB of disk)
flow_snapshots: $(VENV)/.figures
	$(BIN)/python -m workflows.flow_snapshots.make dpca-wake
	$(BIN)/dpca run configs/flow_snapshots.yaml --overwrite
	$(BIN)/python -m workflows.flow_snapshots.draw results/flow_snapshots results/flow_snapshots.png

## brains: grey matter of 120 people, a file each, components as NIfTI, and a figure (ten seconds; 40 MB of disk)
brains: $(VENV)/.figures
	$(BIN)/python -m workflows.brains.make dpca-brains
	$(BIN)/dpca run configs/brains.yaml --overwrite
	$(BIN)/python -m workflows.brains.draw results/brains results/brains.png
	$(BIN)/dpca export results/brains --to nifti --overwrite

## genotypes: 600 people, 60,000 variants, as .bed and as VCF Zarr: components, new people, a chromosome left out, and a figure (half a minute; 200 MB of disk)
genotypes: $(VENV)/.report $(VENV)/.figures
	$(BIN)/python -m workflows.genotypes.make dpca-genotypes
	$(BIN)/dpca run configs/genotypes.yaml --overwrite
	$(BIN)/dpca run configs/genotypes.yaml --overwrite --set input.uri=dpca-genotypes/cohort.vcz --set output.path=results/genotypes-vcf
	$(BIN)/dpca transform results/genotypes dpca-genotypes/new.bed --out results/genotypes-new.zarr --overwrite
	$(BIN)/dpca derive configs/genotypes-derived.yaml --overwrite
	$(BIN)/dpca export results/genotypes --to plink --overwrite
	$(BIN)/dpca export results/genotypes --to grm --overwrite
	$(BIN)/python -m workflows.genotypes.draw results/genotypes results/genotypes-new.zarr dpca-genotypes/new.csv results/genotypes.png

## genotypes_benchmark: 2000 people, 500,000 variants, beside plink2 (ten minutes; needs plink2; 1 GB of memory, 0.3 GB of disk)
genotypes_benchmark: $(READY)
	$(BIN)/python -m workflows.genotypes.products
	$(BIN)/python -m workflows.genotypes.benchmark

## climate_eof: EOFs of temperature and pressure together, 40 years of months, and a figure (half a minute; 40 MB of disk)
climate_eof: $(VENV)/.figures
	$(BIN)/python -m workflows.climate_eof.make dpca-climate
	$(BIN)/dpca run configs/climate_eof.yaml --overwrite
	$(BIN)/python -m workflows.climate_eof.draw results/climate_eof dpca-climate/indices.nc results/climate_eof.png

## one_read: eight analyses of 2 GiB from one read, their maps from another, and a figure (three minutes; 3 GB of disk)
one_read: $(VENV)/.figures
	$(BIN)/python -m workflows.one_read.make dpca-one-read
	$(BIN)/dpca run configs/one_read.yaml --overwrite
	$(BIN)/dpca derive configs/one_read-derived.yaml --overwrite
	$(BIN)/python -m workflows.one_read.draw results/one_read results/one_read-derived results/one_read.png

## one_read_benchmark: the same beside a script for each of xeofs, scipy, PyDMD and PySPOD (half an hour; 16 GB of memory, 3 GB of disk)
one_read_benchmark: $(PEERS)/.ready
	$(PEERS)/bin/python -m workflows.one_read.benchmark

## memory: 16 GB in a budget of 2 GiB, with 1000 and with 4000 samples (needs 18 GB of disk)
memory: $(READY)
	$(BIN)/python -m workflows.memory.measure --samples 1000 --features 4000000
	$(BIN)/python -m workflows.memory.measure --samples 4000 --features 1000000

## faults: every command, disturbed once in every way, and damaged chunks (a quarter of an hour)
faults: $(READY) hostile
	$(BIN)/python -m workflows.campaigns.faults --seed 0

## soak: 1,000 commands that are disturbed at random moments, two at a time, and what came of them (half an hour)
soak: $(READY)
	$(BIN)/python -m workflows.campaigns.faults --seed 0 --runs 1000

## every-file: every kind of file that a killed command leaves, cut, removed and with a bit flipped, one at a time (an hour)
every-file: $(READY)
	$(BIN)/python -m workflows.campaigns.faults --every-file 4

## hostile: 5,000 chunks of 17 formats, damaged or made up, each read in a process of limited memory (three minutes)
hostile: $(READY)
	$(BIN)/python -m workflows.campaigns.hostile --runs 5000 --seed 0

## same-bits: what some fifty cases make and say by another commit's code and by this, byte by byte (five minutes; BASE=commit)
same-bits: $(READY)
	$(BIN)/python -m workflows.campaigns.same_bits --base $(BASE)

## properties: the tests over drawn shapes, chunkings and dtypes, on examples that no run before had (forty minutes; EXAMPLES=1: one)
properties: $(READY)
	DPCA_PROPERTIES=random DPCA_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -n 2 -m "hypothesis and not looks and not clusters"

## crashes: power lost before every flush of a run, in turn, with any part of what was not flushed (a quarter of an hour)
crashes: $(READY)
	DPCA_CRASH_STRIDE=1 $(BIN)/python -m pytest -q tests/test_crashes.py

## mutants: every flush, lock, checksum and comparison that guards a result removed in turn, and the test that notices (some hours)
mutants: $(READY)
	$(BIN)/python -m workflows.campaigns.mutants

## claims: the digits that certificates claim, on 45 kinds of data, against singular values known to more; kernels in 50 digits, and chains of operators on stored matrices (half an hour)
claims: $(READY)
	$(BIN)/python -m workflows.claims.measure --kinds
	$(BIN)/python -m workflows.claims.kernels
	$(BIN)/python -m workflows.claims.answers

## validation: rules for the number of components, on noise with a known number of factors (half a minute)
validation: $(READY)
	$(BIN)/python -m workflows.validation.measure

## coverage: how often intervals of draws cover, on samples of a known distribution (half an hour)
coverage: $(READY)
	$(BIN)/python -m workflows.validation.coverage

## precision: error of the Gram matrix in single precision, against features and panel widths
precision: $(READY)
	$(BIN)/python workflows/precision/measure.py

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(READY): pyproject.toml $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

$(VENV)/.benchmarks: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[benchmarks]'
	touch $@

# Beside .venv, not in it: netCDF4, which PySPOD needs, brings an HDF5 of its own and takes h5netcdf's place in xarray.
$(PEERS)/.ready: pyproject.toml
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[peers]'
	touch $@

# What the demo needs, and no more: what tests need comes with them.
$(VENV)/.report: pyproject.toml $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[report]'
	touch $@

$(VENV)/.looks: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[report,looks,figures,nifti]'
	touch $@

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@

$(VENV)/.figures: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[figures,nifti]'
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) dpca-demo dpca-memory dpca-bench dpca-shells dpca-fields dpca-solvers dpca-faces dpca-wake dpca-brains dpca-climate dpca-genotypes dpca-one-read results
