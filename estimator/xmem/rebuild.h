// SPDX-License-Identifier: Apache-2.0
// xMem's method: from what a training program allocated on the CPU to what it would ask of a GPU's caching allocator, by rules.
// Used by gpumem-probe and tests. Pure: no files; nothing is fitted.
//
// Source of the rules: xMem (arXiv 2510.21048; github.com/Stone-ResearchLife/xMem). They are its authors', weak ones included,
// because this is the baseline that gpumem's own method is compared with.
//
// Note [Rules]
// 1. The first iteration warms up. The second, A, and the third, B, are rebuilt; what lives at the end of B lives for ever.
//    (With fewer: the last two, or the only one as B.)
// 2. Blocks are paired by address, within A and B.
// 3. Layers are the calls of modules that call no other module; for models of the transformers package, see below, all calls of
//    modules, each block being its innermost call's. A layer's operators are those that begin in its call and, in the same
//    iteration, all that carry one of their autograd sequence numbers: its backward operators. Only whole operators count (roots:
//    those that lie in no other of them).
// 4. Forward memory: allocated during the call and still alive at its end. Backward memory: allocated in one of the layer's
//    operators, not during the call, and still alive when the last of them has ended. What dies earlier was internal to an
//    operator. Of a loss (by its name) everything counts. What is allocated outside of layers does not exist.
// 5. Gradients: backward memory of A that is alive at the end of B ends at B's zero_grad (unless A's came after its step).
// 6. Optimizer state: whatever is allocated in A's step and has the size of some parameter is kept; in B's step it is temporary.
//    For models of the transformers package, instead of the latter, every fourth of A's is made once more in both steps.
// 7. Parameters and buffers are there from the start and stay; what the program puts on the device during an iteration lives to
//    its end (in B: for ever).
//
// Note [Transformers]
// The authors treat models of the transformers package apart (rule 6 is in their public code). With leaf modules alone, as the
// versions of that code have it that we could read, their published estimates for such models are 6 to 17 % higher than what comes
// out: attention is computed outside of leaf modules. With all modules they agree (T5-small, Adam, batch 6: to the MiB). For CNNs
// leaf modules agree.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "estimator/xmem/event_format.h"

namespace gpumem::xmem {

struct Request {
  bool allocate;
  std::uint32_t block;   // each is allocated once and released at most once
  std::uint64_t bytes;
};

struct Rebuilt {
  std::vector<Request> requests;
  std::uint32_t blocks = 0;
  int iterations = 0;                 // that were recorded whole
  std::uint64_t parameter_bytes = 0;  // buffers included
  std::uint64_t gradient_bytes = 0;   // of one iteration
  std::uint64_t optimizer_bytes = 0;  // kept
  std::uint64_t data_bytes = 0;       // of one iteration
};

// Fails with not_found where no iteration was recorded: the program never trained.
Result<Rebuilt> rebuild(const std::vector<SequenceEvent>& events);

}  // namespace gpumem::xmem
