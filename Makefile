# Thin on purpose: each target shows the commands that a person would type.

CARGO ?= cargo
LAB = target/release/lab
DEMO = target/demo

.PHONY: help demo test test-full kmod install bench clean

help:
	@echo "make demo       record a real program by PEBS in the virtual lab machine and report on it"
	@echo "make test       every fast check, on the host and in the lab"
	@echo "make test-full  the long checks as well; writes docs/test-report.md"
	@echo "make kmod       build hpm.ko for the lab's kernel"
	@echo "make bench      benchmarks"

# The tools that people use, and what the lab needs to run them.
.PHONY: tools
tools:
	$(CARGO) build --release -p hpmctl -p lab -p suite -p guest

kmod: tools
	$(LAB) build

# A JSON processor that nobody here wrote, with line tables, works on this project's own dependency graph.
$(DEMO)/bin/jaq:
	CARGO_PROFILE_RELEASE_DEBUG=true CARGO_PROFILE_RELEASE_STRIP=none CARGO_PROFILE_RELEASE_LTO=off \
		$(CARGO) install --quiet --locked --root $(DEMO) jaq

demo: tools $(DEMO)/bin/jaq
	target/release/suite demo

test: tools $(DEMO)/bin/jaq
	target/release/suite fast

test-full: tools $(DEMO)/bin/jaq
	target/release/suite full

bench: tools
	$(CARGO) bench --workspace

clean:
	$(CARGO) clean
