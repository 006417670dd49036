// Finds an earlier occurrence of the last tokens of a growing text, to guess that what followed there follows again. It is a suffix automaton, in
// amortised constant time a token (Blumer et al., 1985), with cursors that walk through it. Each state remembers a recent end of its strings. Knows
// tokens alone. Used by one thread at a time.
//   SuffixAutomaton a; for (const std::int32_t t : text) a.append(t); const SuffixAutomaton::Match m = a.repeated();   // text[m.end] is the match's last token
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace lockstep {

class SuffixAutomaton {
 public:
  SuffixAutomaton() : states_(1) {}

  // The longest string at the end of what was read that the text has, and where it ends there.
  struct Match {
    std::int32_t state = 0, length = 0, end = -1;
  };
  void append(std::int32_t token);
  // Of the text itself: the longest end of it that it had before.
  const Match& repeated() const { return repeated_; }
  // Of what `from` had read and `token` behind it.
  Match advance(Match from, std::int32_t token) const;

  std::span<const std::int32_t> text() const { return text_; }
  std::size_t states() const { return states_.size(); }

 private:
  struct State {
    std::int32_t length = 0, link = -1, end = -1;
    std::vector<std::pair<std::int32_t, std::int32_t>> next = {};  // by token; the first state's stand in root_
  };
  std::int32_t next(std::int32_t state, std::int32_t token) const;
  void set_next(std::int32_t state, std::int32_t token, std::int32_t to);
  State& at(std::int32_t state) { return states_[static_cast<std::size_t>(state)]; }
  const State& at(std::int32_t state) const { return states_[static_cast<std::size_t>(state)]; }

  std::vector<std::int32_t> text_;
  std::vector<State> states_;
  std::unordered_map<std::int32_t, std::int32_t> root_;
  std::int32_t last_ = 0;
  Match repeated_;
};

}  // namespace lockstep
