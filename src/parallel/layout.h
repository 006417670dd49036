// The layout of a run over ranks: `tp` ranks share the sums and heads of one replica, `ep` ranks its experts, `dp` replicas split the
// sequences. Bits never depend on it. Plain values.
//   RankLayout layout = rank_layout("tp=2,dp=2"); layout.size() == 4
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr int kMostRanks = 64;  // in all

struct RankLayout {
  int tp = 1, dp = 1, ep = 1;
  int size() const { return tp * dp * ep; }
  int model() const { return tp * ep; }  // ranks of one replica: experts are dealt to all of them
  // Ranks count tp innermost, then ep, then dp.
  int tensor_of(int rank) const { return rank % tp; }
  int model_of(int rank) const { return rank % model(); }
  int data_of(int rank) const { return rank / model(); }
  std::string text() const;  // "tp=2,dp=2,ep=1"
  bool operator==(const RankLayout&) const = default;
};

// "tp=2,dp=2,ep=2", any of them, in any order; empty: one rank. Errors: invalid_argument for an unknown or repeated key, a
// number outside 1 to 64, a product above 64.
RankLayout rank_layout(std::string_view text);

}  // namespace lockstep
