#include "model/blocks/block.h"

#include "base/error.h"

namespace lockstep {

namespace {
[[noreturn]] void keeps_no_keys() {
  fail(ErrorCode::unsupported, "this attention attends to its keys once; a layer of multi-token prediction attends to them several times");
}
}  // namespace

void AttentionBlock::enter(Context&, const Tensor&, int) const { keeps_no_keys(); }
Tensor AttentionBlock::remember(Context&, const Tensor&, int, Selection&, Tensor&) const { keeps_no_keys(); }
Tensor AttentionBlock::again(Context&, const Tensor&, int, const Selection&, const Tensor&) const { keeps_no_keys(); }

}  // namespace lockstep
