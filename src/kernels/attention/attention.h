// Absorbed multi-head latent attention over the paged cache (dense or over a sparse selection), and its adjoint.
// A cache entry is [latent L | rope key R]; the key is the whole entry, the value its first L columns; one entry serves all heads.
//   score = dot16(q[t, h], entry) * scale (once over the concatenated L + R); keys in blocks of 64 (from position 0, or from
//   rank 0 of the ascending selection); running maximum over blocks; in a block: p = exp(score - max), denominator and P.V are
//   ascending fma chains from +0; then acc = fma(acc, alpha, block), alpha = exp(old max - new max); o = acc / denominator.
//   The first block is taken as it is. Of equal scores the earliest is the maximum. log_sum = max + log(denominator).
// Backward (training: whole sequences stand in the batch, key position p is row sequence_begin + p):
//   delta[t, h] = dot16(do, o); P recomputed as exp(score - log_sum[t, h]) with log_sum = max + log(denominator);
//   dP = dot16(do, value); dS = P * (dP - delta); dq[t, h] = (one ascending fma chain over the keys of dS * entry) * scale;
//   dentry[p]: query blocks of 64 absolute positions ascending; in a block the heads are cut into leaves (numerics/form.h),
//   each leaf one chain (query position outer, head inner) of fma(dS * scale, q, .) then, for the latent columns,
//   fma(P, do, .); leaves join pairwise; block sums are added in order from +0 (blocks without a query of the key add nothing).
// attention_target adds, for each key of a row, sum over heads ascending (from +0) of P to target (for index_loss).
// Forward and target read the cache alone: rows may continue a cached prefix. A selection holds at least one position a row,
// ascending, none beyond the row's own. Rows are independent; log_sum and o of a row with a NaN query or key are NaN.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct AttentionShape {
  std::int64_t heads = 0, latent = 0, rotary = 0;
  float scale = 1.0f;
};
struct AttentionForward {
  View o;           // f32 [T, H * L]
  View log_sum;     // f32 [T, H]
  View q;           // f32 [T, H * (L + R)]
  View cache;       // [slots, L + R]
  View selection, count;  // i32 [T, top_k], [T, 1]; none: dense
  Rows rows;
  AttentionShape shape;
};
struct AttentionBackward {
  View dq;          // f32 [T, H * (L + R)], overwritten
  View dentry;      // f32 [T, L + R], overwritten
  View dout, o, log_sum, q, cache, selection, count;
  Rows rows;
  AttentionShape shape;
};
struct AttentionTarget {
  View target;      // f32 [T, width]; added to; column = position (dense) or rank (sparse)
  View log_sum, q, cache, selection, count;
  Rows rows;
  AttentionShape shape;
};

}  // namespace lockstep
