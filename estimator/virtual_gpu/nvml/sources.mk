# SPDX-License-Identifier: Apache-2.0
# NVML's part of libgpumem_vgpu.so, included by ../Makefile.am.
nvml_sources = \
	nvml/device.cpp \
	nvml/memory.cpp \
	nvml/missing.cpp \
	nvml/nvml.h \
	nvml/system.cpp
# End of nvml_sources
