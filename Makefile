# Thin on purpose: each target shows the commands that a person would type.

CARGO ?= cargo
LAB = target/release/lab
DEMO = target/demo

.PHONY: help demo test test-full kmod install uninstall bench clean

# Where `make install` puts things. The kernel, udev and dkms look below /usr and nowhere else.
PREFIX ?= /usr/local
DESTDIR ?=
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
MODULE_SOURCE = $(DESTDIR)/usr/src/hpm-$(VERSION)
UDEV_RULE = $(DESTDIR)/usr/lib/udev/rules.d/70-hpm.rules
HEADER = $(DESTDIR)$(PREFIX)/include/hpm_mark.h
SHIM = $(DESTDIR)$(PREFIX)/lib/hpm/libhpm_methods.so
TRACKER = $(DESTDIR)$(PREFIX)/lib/hpm/libhpm_allocations.so
BASH = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISH = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
SYSUSERS = $(DESTDIR)/usr/lib/sysusers.d/hpm.conf

help:
	@echo "make demo       record a real program by PEBS in the virtual lab machine and report on it"
	@echo "make test       every fast check, on the host and in the lab"
	@echo "make test-full  the long checks as well; writes docs/test-report.md"
	@echo "make kmod       build hpm.ko for the lab's kernel"
	@echo "make bench      what hpm costs against the kernel's perf, in the lab; and how fast its parts are"
	@echo "make install    after make tools: hpmctl and hpmtop with manuals, hpm_mark.h, the libraries that programs load, the module's source for dkms, who may use it (PREFIX, DESTDIR)"
	@echo "make uninstall  removes what make install installed"

# The tools that people use, and what the lab needs to run them.
.PHONY: tools
tools:
	$(CARGO) build --release -p hpmctl -p hpmtop -p hpm-methods -p hpm-allocations -p lab -p suite -p guest -p heap

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

# Takes hours; begun again it goes on where it was broken off. `target/release/suite full --minutes 60` takes an hour of it.
test-full: tools $(DEMO)/bin/jaq
	target/release/suite full

bench: tools
	target/release/suite bench
	$(CARGO) bench --workspace

# Nothing is compiled as root: hpmctl itself writes its manual pages and completions. The libraries are stripped, because every
# measured program maps them. Loading the module at boot stays the administrator's decision.
install:
	@test -x target/release/hpmctl -a -x target/release/hpmtop || { echo "run make tools first" >&2; exit 1; }
	install -D -m 755 target/release/hpmctl $(DESTDIR)$(PREFIX)/bin/hpmctl
	install -D -m 755 target/release/hpmtop $(DESTDIR)$(PREFIX)/bin/hpmtop
	install -D -m 644 libhpm/include/hpm_mark.h $(HEADER)
	install -D -m 755 -s target/release/libhpm_methods.so $(SHIM)
	install -D -m 755 -s target/release/libhpm_allocations.so $(TRACKER)
	target/release/hpmctl man $(DESTDIR)$(PREFIX)/share/man/man1
	target/release/hpmtop --man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(BASH) $(ZSH) $(FISH)
	target/release/hpmctl completions bash > $(BASH)/hpmctl
	target/release/hpmctl completions zsh > $(ZSH)/_hpmctl
	target/release/hpmctl completions fish > $(FISH)/hpmctl.fish
	target/release/hpmtop --completions bash > $(BASH)/hpmtop
	target/release/hpmtop --completions zsh > $(ZSH)/_hpmtop
	target/release/hpmtop --completions fish > $(FISH)/hpmtop.fish
	rm -rf $(MODULE_SOURCE)
	install -d $(MODULE_SOURCE)
	cp -r kmod/Kbuild kmod/README.md kmod/hpm.rs kmod/shell LICENSE-GPL-2.0 $(MODULE_SOURCE)/
	for part in abi core; do install -d $(MODULE_SOURCE)/$$part && cp -r kmod/$$part/src $(MODULE_SOURCE)/$$part/ || exit 1; done
	sed 's/@VERSION@/$(VERSION)/' kmod/dkms.conf > $(MODULE_SOURCE)/dkms.conf
	install -D -m 644 kmod/packaging/70-hpm.rules $(UDEV_RULE)
	install -D -m 644 kmod/packaging/hpm.sysusers $(SYSUSERS)

uninstall:
	rm -rf $(MODULE_SOURCE)
	rm -f $(DESTDIR)$(PREFIX)/bin/hpmctl $(DESTDIR)$(PREFIX)/share/man/man1/hpmctl*.1
	rm -f $(DESTDIR)$(PREFIX)/bin/hpmtop $(DESTDIR)$(PREFIX)/share/man/man1/hpmtop.1
	rm -f $(BASH)/hpmctl $(ZSH)/_hpmctl $(FISH)/hpmctl.fish $(BASH)/hpmtop $(ZSH)/_hpmtop $(FISH)/hpmtop.fish
	rm -f $(HEADER) $(SHIM) $(TRACKER) $(UDEV_RULE) $(SYSUSERS)

clean:
	$(CARGO) clean
