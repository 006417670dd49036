// A deterministic automaton over the code points of a text: what patterns, formats, number ranges and length bounds of
// a schema are compiled to before they are encoded as bytes.
//   TextNfa nfa; ...; TextDfa dfa = determinise(nfa, a, b, work); dfa = intersect(dfa, other, work); dfa.accepts_text("2024")
// In a pruned one every state leads to an accepting state. Sizes are bounded (more than kMaxStates is resource_exhausted), and so is
// the work of all automata of one grammar: its SchemaWork. Knows no JSON. Plain values; any thread.
#pragma once
#include <limits>
#include <string_view>
#include <vector>

#include "text/grammar/code_point_set.h"
#include "text/grammar/schema_work.h"

namespace lockstep {

struct TextNfa {
  struct Edge {
    int to = 0;
    int set = -1;  // of `sets`; -1: nothing is read
  };
  std::vector<std::vector<Edge>> states;
  std::vector<CodePointSet> sets;

  int add_state();
  void connect(int from, int to) { states[static_cast<std::size_t>(from)].push_back({to, -1}); }
  void connect(int from, int to, CodePointSet set);
  void connect_text(int from, int to, std::u32string_view text);
};

struct TextDfa {
  static constexpr std::size_t kMaxStates = 20000;

  std::vector<char32_t> starts{0};  // class i: code points from starts[i] up to the next start
  std::vector<std::int32_t> next;   // [state * classes + class], -1: none
  std::vector<bool> accepts;        // one a state; the first state begins
  std::size_t classes() const { return starts.size(); }
  bool empty() const { return accepts.empty(); }  // accepts nothing (of a pruned one)

  bool accepts_text(std::string_view utf8) const;
};

// `accept` is the one state that ends a text. Pruned.
TextDfa determinise(const TextNfa& nfa, int start, int accept, SchemaWork& work);
TextDfa intersect(const TextDfa& a, const TextDfa& b, SchemaWork& work);
// What `a` accepts and `b` does not.
TextDfa subtract(const TextDfa& a, const TextDfa& b, SchemaWork& work);
// Texts of low to high code points.
TextDfa with_length(const TextDfa& a, std::int64_t low, std::int64_t high, SchemaWork& work);
TextDfa any_text();
TextDfa exact_texts(const std::vector<std::string>& texts, SchemaWork& work);

}  // namespace lockstep
