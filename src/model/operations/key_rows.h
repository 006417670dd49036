// The rows of a forward for the kernels of attention and indexers. Positions before ForwardOptions::first_key are not keys.
//   AttentionForward{o, log_sum, q, cache, positions, count, key_rows(ctx), shape};
#pragma once
#include "model/context.h"

namespace lockstep {

inline Rows with_first_key(const Context& ctx, Rows rows) {
  rows.first_key = ctx.options().first_key;
  return rows;
}
inline Rows key_rows(const Context& ctx) { return with_first_key(ctx, ctx.batch().rows()); }
inline Rows tape_key_rows(const Context& ctx) { return with_first_key(ctx, ctx.batch().tape_rows()); }

}  // namespace lockstep
