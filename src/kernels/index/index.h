// The lightning indexer of DSA (GLM-5, DeepSeek-V3.2): which keys a row attends to.
//   I[t, s] = sum_j (w[t, j] * Hi^-1/2) * relu((q[t, j] . k[s]) * D^-1/2), heads j ascending, one fma chain from +0;
//   q.k is dot16, the scale multiplies the finished sum; k read from the cache as stored; s <= position of t.
// Selection: the top min(top_k, visible) scores; order: score descending, position ascending, -0 equals +0; emitted in
// ascending position. visible <= top_k: all, without scoring. A NaN score marks the row in `flags` (bit 0) and counts as lowest.
// Keys before Rows::first_key (of a row's own position at most) are not visible to selection.
// The factors Hi^-1/2 and D^-1/2 are 1 / sqrt in fp32; the weight is scaled before it enters the chain.
// index_loss trains the indexer (GLM-5 report; docs/numerics.md, "The indexer"): for each row over its keys (selection, or all visible
// when `selection` is absent): loss = KL(p || softmax(I)), p = target / sum(target); dI = weight * (softmax(I) - p).
//   log softmax(I) = I - log_sum, log_sum in blocks of 64 keys as in attention.h; sum(target) adds ascending from +0, and is
//   positive; loss is one ascending chain of fma(p, log(max(p, 1e-30)) - log softmax, .).
//   g[j, s] = (dI * scaled weight) * D^-1/2 where q.k > 0, else +0; dq[j] is one ascending chain over the keys of fma(g, k, .);
//   dw[j] = (one such chain of fma(dI, relu, .)) * Hi^-1/2; a query's chain for a key is fma(g, q, .) over ascending heads.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct IndexSelect {
  View selection;  // i32 [T, top_k]: positions ascending; the rest -1
  View count;      // i32 [T, 1]
  View flags;      // i32 [T, 1], or-ed
  View q;          // f32 [T, Hi * D]
  View w;          // f32 [T, Hi]
  View cache;      // index keys [slots, D]
  Rows rows;
  std::int64_t heads = 0, size = 0, top_k = 0;
};
// Training only. Dense scratch: target is f32 [T, width], width >= longest sequence; column = position (dense) or rank (sparse).
struct IndexLoss {
  View dq, dw;                                 // f32 [T, Hi * D], [T, Hi], overwritten
  View dk;                                     // f32 [T, D], overwritten: gradient of the cached key of each row; for key s: query rows ascending, one
                                               // chain per query (over heads, from +0), the finished chains added in order
  View loss;                                   // f32 [T, 1]: KL of the row
  View q, w, cache, target, selection, count;  // selection/count none: dense
  Rows rows;
  std::int64_t heads = 0, size = 0;
  float weight = 1.0f;
  // Of a sequence whose queries are computed piece by piece (Rows::first): dk has a row for each key, from key_begin on, and the sums of keys before the
  // first row go on from what it has. On the CPU.
  bool continues = false;
};

}  // namespace lockstep
