# SPDX-License-Identifier: GPL-2.0
#
# Two in one: kbuild's list of the loadable modules, and the commands for people
# ("make help").

ifneq ($(KERNELRELEASE),)

# The page pool's tests look at what is private to net/core in the kernel.
ccflags-y += -I$(srctree)/net/core

obj-$(CONFIG_PAGE_POOL_KUNIT_TEST) += net/core/page_pool_test.o
obj-$(CONFIG_PFRAG_POOL_KUNIT_TEST) += net/core/pfrag_pool_test.o
obj-$(CONFIG_HNS3_SIM) += drivers/net/ethernet/hisilicon/hns3/hns3_sim/

else

lab := tools/lab
# On the command line KDIR is exported by make itself; the tools see it.
KDIR ?=
NIC ?=
OUT ?=

help:
	@echo 'make run                 measure TCP over emulated NICs behind a strict IOMMU,'
	@echo '                         with tcp_use_pfrag_pool at 0 and 1 in turn'
	@echo '                         (NIC=hns3 or NIC=virtio_net: only that one, hns3 in full)'
	@echo 'make test                run every test, most of them in an emulated machine'
	@echo 'make mutants             take one cure after the other out, and see its test fail'
	@echo 'make apply KDIR=tree     put the series into a kernel tree, git or plain'
	@echo 'make unapply KDIR=tree   take it out again'
	@echo 'make export OUT=dir      write the series for git am'
	@echo '                         (PREFIX="PATCH net-next v2", KDIR=tree to base it on)'
	@echo 'make modules KDIR=tree   build the loadable modules against a built kernel'
	@echo '                         with the series (default: the lab kernel)'
	@echo 'make sparse              look for warnings of sparse and W=1 that the series adds'
	@echo 'make checkpatch          run checkpatch --strict over every patch'
	@echo 'make bisect-build        build a kernel with one patch more each time'
	@echo 'make clean               remove what was built, but not the kernel source'
	@echo 'make distclean           remove the kernel source, too'
	@echo
	@echo 'All output goes to build/. The kernel is Linux 7.3 as Debian has it; run, test, mutants,'
	@echo 'sparse, checkpatch and bisect-build take another one with KDIR=tree, which they'
	@echo 'only read.'

run:
	@$(lab)/run $(if $(NIC),--nic '$(NIC)')

test:
	@$(lab)/test

mutants:
	@$(lab)/mutate

apply unapply:
	@$(lab)/series $@ '$(KDIR)'

export:
	@[ -n '$(OUT)' ] || { echo 'error: no directory given: pass OUT=dir.' >&2; exit 1; }
	@[ -n '$(KDIR)' ] || $(lab)/fetch base
	@$(lab)/series export '$(or $(KDIR),build/src/linux)' '$(OUT)'

modules sparse checkpatch bisect-build:
	@$(lab)/series-$@

clean:
	@find build -mindepth 1 -maxdepth 1 ! -name src -exec rm -rf {} + 2>/dev/null || :

distclean:
	@rm -rf build

.PHONY: help run test mutants apply unapply export modules sparse checkpatch \
	bisect-build clean distclean

endif
