// The stack machine over bytes that a grammar is compiled to. A rule (an object, an array, a string, a literal) is a
// deterministic automaton over bytes whose states may also call another rule and continue when that one ends. A rule
// counts (characters of a string, items of an array), so that bounds cost no states; a count of calls bounds depth. No
// reachable state is a dead end: `height` says how many containers deep a state must still go, and a state is
// entered only if the remaining depth allows it. Knows no tokens and no schema. Immutable once built; any thread.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lockstep {

constexpr std::int64_t kNoMaximum = std::numeric_limits<std::int64_t>::max();

struct Machine {
  // A step over a byte: the state it leads to and what it asks of the rule's count.
  struct Step {
    std::int32_t to = -1;  // -1: none
    std::uint8_t guards = 0;
  };
  enum Guard : std::uint8_t { kCounts = 1, kNeedsMinimum = 2, kBelowMaximum = 4 };
  struct Call {
    std::int32_t start, back;  // first state of the rule called; where the caller goes on
    bool counts;
  };
  struct Token {
    std::int32_t id, to;
  };
  struct State {
    std::int32_t rule = 0;
    bool accepts = false;
    std::uint16_t height = 0;
    std::uint32_t distance = 0;           // bytes at least to the rule's end, counts apart
    std::uint32_t calls = 0, tokens = 0;  // where its calls and tokens begin; they end where the next state's do
  };
  struct Rule {
    std::int32_t start = 0;
    std::int64_t minimum = 0, maximum = kNoMaximum;
    bool container = false;  // an object or an array: one level of depth
    bool calls = false;
    bool recursive = false;  // reaches itself: how deep it may go matters
  };
  static constexpr std::uint16_t kDead = 0xffff;

  std::vector<State> states;  // and one more, which ends the last one's lists
  std::vector<Call> calls;
  std::vector<Token> tokens;
  std::vector<Rule> rules;
  std::uint8_t class_of[256] = {};
  std::size_t classes = 1;
  std::vector<Step> steps;  // [state * classes + class]
  std::int32_t start = 0;
  int depth = 64;  // containers inside each other

  std::size_t bytes() const;  // of memory
  const Step& step(std::int32_t state, std::uint8_t byte) const { return steps[static_cast<std::size_t>(state) * classes + class_of[byte]]; }
};

// Rules as they are written: states with edges in any number, made deterministic by build().
class MachineBuilder {
 public:
  struct Limits {
    std::size_t states = 200'000, rules = 20'000, edges = 4'000'000;
  };
  explicit MachineBuilder(const Limits& limits) : limits_(limits) {}

  // A new rule already has its first state (kStart) and its accepting one (kAccept).
  int add_rule(bool container = false);
  static constexpr int kStart = 0, kAccept = 1;
  void set_count(int rule, std::int64_t minimum, std::int64_t maximum);
  int add_state(int rule);
  // Edges of a rule from state `from` to state `to`: over nothing, one byte of [low, high], the bytes of a text, a call of another rule, or a token.
  void epsilon(int rule, int from, int to);
  void bytes(int rule, int from, int to, std::uint8_t low, std::uint8_t high, std::uint8_t guards = 0);
  void text(int rule, int from, int to, std::string_view bytes);
  void call(int rule, int from, int to, int callee, bool counts = false);
  void token(int rule, int from, int to, std::int32_t id);
  std::size_t rules() const { return rules_.size(); }

  // Throws invalid_argument when nothing at all is accepted, unsupported for a rule that begins with itself,
  // resource_exhausted beyond the limits; what ClientWork throws: the memory is counted there.
  Machine build(int start_rule, int depth);

 private:
  struct Edge {
    enum class Kind : std::uint8_t { epsilon, bytes, call, token } kind;
    std::uint8_t low = 0, high = 0, guards = 0;
    std::int32_t to = 0, other = 0;  // rule or token
  };
  struct RuleText {
    bool container = false;
    std::int64_t minimum = 0, maximum = kNoMaximum;
    std::vector<std::vector<Edge>> states;
  };
  void add(int rule, int from, const Edge& edge);
  void count(std::size_t bytes);
  int resolve(int rule) const;
  void find_aliases();
  void choose_classes(Machine& machine) const;
  void determinise(int rule, Machine& machine);
  void find_ends(Machine& machine) const;
  void check_beginnings(const Machine& machine) const;
  void find_recursion(Machine& machine) const;

  Limits limits_;
  std::size_t states_ = 0, edges_ = 0, counted_ = 0;
  std::vector<RuleText> rules_;
  std::vector<int> alias_;
};

}  // namespace lockstep
