# SPDX-License-Identifier: Apache-2.0
# What libgpumem_vgpu.so takes from this room; included by ../Makefile.am.
virtual_gpu_library_sources = \
	libraries/cublas.cpp \
	libraries/cublaslt.cpp \
	libraries/cublasxt.cpp \
	libraries/cudnn.cpp \
	../workspaces/plans.cpp \
	../workspaces/plans.h \
	../workspaces/table.cpp \
	../workspaces/table.h \
	libraries/cudnn_backend.cpp \
	libraries/cudnn_descriptor.cpp \
	libraries/cudnn_descriptor.h \
	libraries/cudnn_learned.cpp \
	libraries/cudnn_learned.h \
	libraries/cudnn_real.cpp \
	libraries/cudnn_real.h \
	libraries/cudnn_rnn.cpp \
	libraries/cudnn_rnn.h \
	libraries/cudnn_rnn_real.cpp \
	libraries/cudnn_rnn_v6.cpp \
	libraries/cufft.cpp \
	libraries/cufile.cpp \
	libraries/cupti.cpp \
	libraries/curand.cpp \
	libraries/cusolver.cpp \
	libraries/cusolver_more.cpp \
	libraries/cusparse.cpp \
	libraries/cusparselt.cpp \
	libraries/handles.cpp \
	libraries/handles.h \
	libraries/library.cpp \
	libraries/library.h \
	libraries/missing.cpp \
	libraries/nccl.cpp \
	libraries/nccl.h \
	libraries/nccl_buffers.cpp \
	libraries/nccl_exchange.cpp \
	libraries/nccl_group.cpp \
	libraries/nccl_values.cpp
# End of virtual_gpu_library_sources

virtual_gpu_library_names = \
	libraries/names/cublas.def \
	libraries/names/cublaslt.def \
	libraries/names/cudnn.def \
	libraries/names/cufft.def \
	libraries/names/cufile.def \
	libraries/names/cupti.def \
	libraries/names/curand.def \
	libraries/names/cusolver.def \
	libraries/names/cusolvermg.def \
	libraries/names/cusparse.def \
	libraries/names/cusparselt.def \
	libraries/names/nccl.def
# End of virtual_gpu_library_names
