// A piece of work on a device: for which accounts it runs, what kind it is, how long it took. The executor (serving/executor.h) fills these in; metrics
// and the page show them. Plain values.
//   std::vector<DevicePart> parts{{ann, 12}, {bob, 4}};  // one engine step: 12 rows of ann's sequences, 4 of bob's
//   executor.name_piece("step", parts);
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fair_shares.h"

namespace lockstep {

// One account's part of a piece, by tokens.
struct DevicePart {
  std::shared_ptr<ShareAccount> account;
  double tokens = 0;
};

// All pieces of one kind so far.
struct PieceKind {
  std::string name;
  std::uint64_t pieces = 0;
  double longest = 0;          // seconds of the longest piece, without live steps that ran in its middle
  double longest_stretch = 0;  // seconds, the longest time between two points at which a piece could give way
};

// What has used a device since the start, and who waits for it now.
struct ExecutorState {
  ClassShares shares;
  std::vector<FairShares::Line> used, waiting;
  std::vector<PieceKind> kinds;
};

// Of the piece that runs now. Seconds.
struct RunningPiece {
  std::shared_ptr<ShareAccount> account;
  const char* kind = "other";
  std::vector<DevicePart> parts;  // empty: all of it is the account's
  double began = 0;
  double others = 0;   // of live steps that ran in its middle
  double charged = 0;  // already charged for itself
  double resumed = 0, longest_stretch = 0;
  RunningPiece* outer = nullptr;  // the piece that gave way to this one
};

}  // namespace lockstep
