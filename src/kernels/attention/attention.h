// Attention over the paged cache, and its adjoint: grouped queries, or absorbed multi-head latent attention (dense or over a sparse
// selection). Query heads are cut into kv_heads groups of H / kv_heads; a group shares a key and a value. A cache entry holds
//   values apart (grouped queries): the keys of all kv heads, then the values of all kv heads;
//   value_in_key (latent attention, kv_heads 1): one key, [latent | rope key]; the value is its first columns.
//   score = dot16(q[t, h], key) * scale; keys in blocks of 64 (from position 0, or from
//   rank 0 of the ascending selection); running maximum over blocks; in a block: p = exp(score - max), denominator and P.V are
//   ascending fma chains from +0; then acc = fma(acc, alpha, block), alpha = exp(old max - new max); o = acc / denominator.
//   The first block is taken as it is. Of equal scores the earliest is the maximum. log_sum = max + log(denominator).
// Backward (training: whole sequences stand in the batch, key position p is row sequence_begin + p; where rows.first is given, a
// sequence may continue another: its rows are positions first .. and dentry has a row for each of its keys, from key_begin on):
//   delta[t, h] = dot16(do, o); P recomputed as exp(score - log_sum[t, h]) with log_sum = max + log(denominator);
//   dP = dot16(do, value); dS = P * (dP - delta); dq[t, h] = (one ascending fma chain over the keys of dS * key) * scale;
//   dentry[p]: query blocks of 64 absolute positions ascending; in a block the heads of a group are cut into leaves
//   (numerics/form.h), each leaf one chain (query position outer, head inner) of, for columns of the key, fma(dS * scale, q, .)
//   then, for columns of the value, fma(P, do, .); leaves join pairwise; block sums are added in order from +0 (blocks without a
//   query of the key add nothing).
// attention_target (kv_heads 1) adds, for each key of a row, sum over heads ascending (from +0) of P to target (for index_loss).
// A window (dense attention only): the row at position p sees the keys max(0, p - window + 1) .. p. Keys outside it enter no sum, maximum or
// gradient; blocks count from position 0 all the same, so that the first block of a row may begin inside one.
// Rows::first_key leaves out the keys before it in the same way, in all rows (dense; a selection holds no such key).
// A sink (gpt_oss): a learned logit per head, which joins the softmax's sum as a key without a value, after all blocks: max' = max(max, sink),
//   alpha = exp(max - max'), denominator' = fma(denominator, alpha, exp(sink - max')), o = (acc * alpha) / denominator'; log_sum is that of
//   the whole sum. The backward is the one above; AttentionSinks writes, for each row and head, the terms of the sink's gradient:
//   dsink[t, h] = exp(sink - log_sum[t, h]) * (0 - delta[t, h]).
// With keys_read the forward counts its work: the cell of a row and query head grows by the number of keys of each block that is scored.
// Forward and target read the cache alone: rows may continue a cached prefix. A selection holds at least one position per row,
// ascending, none beyond the row's own. Rows are independent; log_sum and o of a row with a NaN query or key are NaN.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct AttentionShape {
  std::int64_t heads = 0, kv_heads = 1;
  std::int64_t key = 0, value = 0;  // width of one head's key (and query), and of its value
  bool value_in_key = false;
  float scale = 1.0f;
  std::int64_t window = 0;  // a row sees at most this many keys, the last its own; 0: all (dense only)
  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t entry() const { return kv_heads * (value_in_key ? key : key + value); }
};
struct AttentionForward {
  View o;                 // f32 [T, H * value]
  View log_sum;           // f32 [T, H]
  View q;                 // f32 [T, H * key]
  View cache;             // [slots, entry]
  View selection, count;  // i32 [T, top_k], [T, 1]; none: dense
  Rows rows;
  AttentionShape shape;
  View keys_read{};  // i32 [T, H], or none: grows by the number of keys that each row and query head scores
  View sinks{};      // f32 or bf16 [1, H], or none
};
struct AttentionSinks {
  View dsink;             // f32 [T, H], overwritten
  View dout, o, log_sum;  // f32 [T, H * value] twice, [T, H]
  View sinks;             // f32 or bf16 [1, H]
};
struct AttentionBackward {
  View dq;      // f32 [T, H * key], overwritten
  View dentry;  // f32 [T, entry], or a row per key of each sequence (rows.key_begin); overwritten
  View dout, o, log_sum, q, cache, selection, count;
  Rows rows;
  AttentionShape shape;
  // Of a sequence whose queries are computed piece by piece (docs/ranks.md, cp): the keys [first_key, end_key) alone, first_key a multiple of 64; the
  // ranges of a row follow each other in ascending order, and dq goes on. `continues`: so do the sums of keys before the sequence's first row, from
  // what dentry has. On the CPU.
  std::int64_t first_key = 0, end_key = INT64_MAX;
  bool continues = false;
};
struct AttentionTarget {
  View target;  // f32 [T, width]; added to; column = position (dense) or rank (sparse)
  View log_sum, q, cache, selection, count;
  Rows rows;
  AttentionShape shape;
};

}  // namespace lockstep
