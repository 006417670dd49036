// A message between two processes of a run: a fixed head that says which exchange it belongs to, then its bytes. And how a process's part of a run
// ended, which each sends to all. parallel/mail.h sends and receives them. Plain values.
//   LetterHead head{.kind = LetterHead::Kind::data, .group = 0, .from = 1, .to = 0, .run = run, .number = exchange, .bytes = body.size()};
#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"

namespace lockstep {

struct LetterHead {
  enum class Kind : std::uint32_t { data, end, call, failed, bye };
  Kind kind = Kind::data;
  std::int32_t group = 0, from = 0, to = 0;  // of data: a group's number, ranks of the whole layout
  std::uint64_t run = 0;
  std::uint64_t number = 0;  // of the exchange in its group; of the call
  std::int64_t rows = 0, cols = 0;
  std::int32_t dtype = 0, element_bytes = 0;
  std::uint64_t bytes = 0;  // that follow
};

struct Letter {
  LetterHead head;
  std::string body;
};

// Thrown to a rank that waits when another has failed.
class RankReleased final : public Error {
 public:
  RankReleased() : Error(ErrorCode::cancelled, "another rank failed") {}
};

// Thrown where a letter has not come within MailPatience (parallel/mail.h).
class LetterLate final : public Error {
 public:
  explicit LetterLate(std::string message) : Error(ErrorCode::io, std::move(message)) {}
};

// How a process's part of a run ended.
struct RunEnd {
  enum class State : std::uint8_t { done, released, failed };
  State state = State::done;
  ErrorCode code = ErrorCode::internal;
  std::string message;
};

}  // namespace lockstep
