// The layout of a run over ranks: `pp` stages of a replica have runs of its layers, `tp` ranks share the sums and heads of a stage, `ep` ranks its
// experts, `cp` replicas the positions of long sequences, `dp` groups of those the sequences. Bits never depend on it. Plain values.
//   RankLayout layout = rank_layout("tp=2,dp=2"); layout.size() == 4; rank_layout("dp=2,shard=weights").shards_weights();
//   rank_layout("ep=4,rows=dealt").deals_rows()
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

inline constexpr int kMostRanks = 64;  // in all

// Of what replicas keep shares: of the optimizer's state and of finished gradients alone, or of weights and accumulators, too, which are whole on each of
// them a segment at a time (train/gathered_weights.h).
enum class RankShard { state, weights };

// Of the ranks that share a replica's experts, in training: all compute the same rows, or each has sequences of its own, whose rows travel to their
// experts and back (model/dealt_rows.h).
enum class ReplicaRows { shared, dealt };

struct RankLayout {
  int tp = 1, dp = 1, ep = 1, pp = 1, cp = 1;
  RankShard shard = RankShard::state;
  ReplicaRows rows = ReplicaRows::shared;
  bool deals_rows() const { return rows == ReplicaRows::dealt && ep > 1; }
  bool shards_weights() const { return shard == RankShard::weights && data() > 1; }
  int size() const { return replica() * data(); }
  int data() const { return cp * dp; }   // replicas: each has all of the model
  int model() const { return tp * ep; }  // ranks of one stage: experts are dealt to all of them
  int replica() const { return model() * pp; }
  // Ranks count tp innermost, then ep, then pp, then cp, then dp.
  int tensor_of(int rank) const { return rank % tp; }
  int model_of(int rank) const { return rank % model(); }
  int stage_of(int rank) const { return rank / model() % pp; }
  int replica_of(int rank) const { return rank % replica(); }
  int data_of(int rank) const { return rank / replica(); }
  int context_of(int rank) const { return data_of(rank) % cp; }
  // Of the ranks that have pieces of the same sequences and the same share of the model: the same number for all of them.
  int fellows_of(int rank) const { return data_of(rank) / cp * replica() + replica_of(rank); }
  // Of the ranks that a rank has as peers in the stages of its replica: the same number for all of them, 0 and up.
  int peers_of(int rank) const { return data_of(rank) * model() + model_of(rank); }
  // Each rank that a stage follows, with its peer there.
  std::vector<std::pair<int, int>> links() const;
  // "tp=2,dp=2,ep=1"; with stages, pieces and weights in shares "tp=2,dp=2,ep=1,pp=2,cp=2,shard=weights"; "tp=1,dp=1,ep=2,rows=dealt"
  std::string text() const;
  bool operator==(const RankLayout&) const = default;
};

// "tp=2,dp=2,ep=2,pp=2,cp=2,shard=weights", any of them, in any order, or "dp=2,ep=2,rows=dealt"; empty: one rank. Errors: invalid_argument for an unknown
// or repeated key, a number outside 1 to 64, a product above 64, another word than a key has, rows=dealt beside tp, pp, cp or shard=weights.
RankLayout rank_layout(std::string_view text);

}  // namespace lockstep
