#include "text/grammar/token_grammar.h"

#include <algorithm>
#include <map>

#include "base/client_work.h"
#include "base/error.h"
#include "text/grammar/schema_rules.h"
#include "text/grammar/token_walk.h"

namespace lockstep {

using nlohmann::ordered_json;

struct TokenGrammar::Compiled {
  Machine machine;
  std::shared_ptr<const TokenBytes> tokens;
  MaskCache masks;
  std::shared_ptr<void> memory;  // of the machine, where it is counted
  Compiled(Machine m, std::shared_ptr<const TokenBytes> t)
      : machine(std::move(m)), tokens(std::move(t)), masks(machine, *tokens), memory(ClientWork::hold(machine.bytes())) {}
};

GrammarPart GrammarPart::literal(std::string text) {
  GrammarPart part;
  part.text = std::move(text);
  return part;
}
GrammarPart GrammarPart::token(std::int32_t id) {
  GrammarPart part;
  part.kind = Kind::token;
  part.id = id;
  return part;
}
GrammarPart GrammarPart::schema(ordered_json schema) {
  GrammarPart part;
  part.kind = Kind::schema;
  part.json = std::make_shared<const ordered_json>(std::move(schema));
  return part;
}
GrammarPart GrammarPart::tags(ordered_json schema, GrammarPart before_key, GrammarPart before_text, GrammarPart before_value, GrammarPart after,
                              std::string after_text, bool says_which) {
  GrammarPart part = GrammarPart::schema(std::move(schema));
  part.kind = Kind::tags;
  part.parts = {std::move(before_key), std::move(before_text), std::move(before_value), std::move(after)};
  part.text = std::move(after_text);
  part.most = says_which;
  return part;
}
GrammarPart GrammarPart::json_object() { return schema({{"type", "object"}}); }
GrammarPart GrammarPart::text_with(std::string mark, std::int32_t mark_token, GrammarPart behind, std::vector<std::string> never,
                                   std::vector<std::int32_t> tokens) {
  GrammarPart part;
  part.kind = Kind::text_with;
  part.text = std::move(mark);
  part.id = mark_token;
  part.parts = {std::move(behind)};
  part.never = std::move(never);
  part.tokens = std::move(tokens);
  return part;
}
GrammarPart GrammarPart::text_unless(std::string first, std::vector<std::string> never, std::vector<std::int32_t> tokens) {
  GrammarPart part;
  part.kind = Kind::text_unless;
  part.text = std::move(first);
  part.never = std::move(never);
  part.tokens = std::move(tokens);
  return part;
}
GrammarPart GrammarPart::sequence(std::vector<GrammarPart> parts) {
  GrammarPart part;
  part.kind = Kind::sequence;
  part.parts = std::move(parts);
  return part;
}
GrammarPart GrammarPart::alternatives(std::vector<GrammarPart> parts) {
  GrammarPart part;
  part.kind = Kind::alternatives;
  part.parts = std::move(parts);
  return part;
}
GrammarPart GrammarPart::repeat(GrammarPart of, std::int64_t least, std::int64_t most) {
  GrammarPart part;
  part.kind = Kind::repeat;
  part.parts = {std::move(of)};
  part.least = least;
  part.most = most;
  return part;
}

namespace {
constexpr std::int64_t kMaxRepeat = 64;

class PartWriter {
 public:
  PartWriter(MachineBuilder& builder, const TokenBytes& tokens, const GrammarOptions& options)
      : builder_(builder), json_(builder), tag_json_(builder, true), tokens_(tokens), options_(options) {}
  void write(const GrammarPart& part, int rule, int from, int to) {
    switch (part.kind) {
      case GrammarPart::Kind::literal:
        return builder_.text(rule, from, to, part.text);
      case GrammarPart::Kind::token:
        if (part.id < 0 || part.id >= tokens_.size() || tokens_.is_end(part.id))
          fail(ErrorCode::invalid_argument, "the grammar names token {}, allowed are ids from 0 to {} that end no text", part.id, tokens_.size() - 1);
        return builder_.token(rule, from, to, part.id);
      case GrammarPart::Kind::schema:
        return builder_.call(rule, from, to, SchemaRules(builder_, json_, *part.json, options_.closed_objects, work_).compile());
      case GrammarPart::Kind::tags: {
        const auto piece = [&](std::size_t i) { return [this, &part, i](int r, int a, int b) { write(part.parts[i], r, a, b); }; };
        SchemaRules(builder_, tag_json_, *part.json, options_.closed_objects, work_)
            .compile_tags(rule, from, to, {piece(0), piece(1), piece(2), piece(3), part.text, part.most != 0});
        return;
      }
      case GrammarPart::Kind::sequence:
        for (const GrammarPart& p : part.parts) {
          const int next = builder_.add_state(rule);
          write(p, rule, from, next);
          from = next;
        }
        return builder_.epsilon(rule, from, to);
      case GrammarPart::Kind::alternatives:
        for (const GrammarPart& p : part.parts) write(p, rule, from, to);
        return;
      case GrammarPart::Kind::repeat:
        if (part.least < 0 || part.most < part.least || part.most > kMaxRepeat)
          fail(ErrorCode::invalid_argument, "the grammar repeats a part {} to {} times, allowed is 0 to {}", part.least, part.most, kMaxRepeat);
        for (std::int64_t i = 0; i < part.most; ++i) {
          const int next = builder_.add_state(rule);
          if (i >= part.least) builder_.epsilon(rule, from, to);
          write(part.parts[0], rule, from, next);
          from = next;
        }
        return builder_.epsilon(rule, from, to);
      case GrammarPart::Kind::text_with: {
        if (part.text.empty()) fail(ErrorCode::invalid_argument, "the grammar has an empty mark, allowed is one of at least a byte");
        const int behind = builder_.add_state(rule), start = write_text(part, part.text, behind, rule, to)[""];
        builder_.epsilon(rule, from, start);
        return write(part.parts[0], rule, behind, start);
      }
      case GrammarPart::Kind::text_unless:
        return write_text_unless(part, rule, from, to);
    }
  }

 private:
  using TextStates = std::map<std::string, int>;

  // The next state after the text `seen` and a byte: that of the longest marker prefix that the text now ends with; -1: the byte is not allowed.
  static int target(const TextStates& states, const GrammarPart& part, const std::string& mark, int behind, std::string seen, int byte) {
    for (seen += static_cast<char>(byte);; seen.erase(0, 1)) {
      if (!mark.empty() && seen == mark) return behind;
      if (std::find(part.never.begin(), part.never.end(), seen) != part.never.end()) return -1;
      if (const auto found = states.find(seen); found != states.end()) return found->second;
    }
  }
  // An edge for each run of bytes that lead to the same state.
  template <class F>
  void write_bytes(int rule, int state, const F& next_of) {
    for (int low = 0; low < 256;) {
      const int next = next_of(low);
      int high = low;
      while (high < 255 && next_of(high + 1) == next) ++high;
      if (next >= 0) builder_.bytes(rule, state, next, static_cast<std::uint8_t>(low), static_cast<std::uint8_t>(high));
      low = high + 1;
    }
  }
  void write_tokens(const GrammarPart& part, int rule, int state, int to) {
    for (const std::int32_t id : part.tokens)
      if (id >= 0 && id < tokens_.size() && !tokens_.is_end(id)) builder_.token(rule, state, to, id);
  }

  // A state for each beginning of the mark (empty: there is none) and of what is never written: the longest that the text so far ends with
  // (Aho and Corasick). That of "" is where a text begins; it may end anywhere.
  TextStates write_text(const GrammarPart& part, const std::string& mark, int behind, int rule, int to) {
    TextStates states;
    std::vector<std::string> words = part.never;
    words.push_back(mark);
    for (const std::string& word : words)
      for (std::size_t n = 0; n < std::max<std::size_t>(word.size(), 1); ++n) states[word.substr(0, n)] = 0;
    for (auto& [beginning, state] : states) state = builder_.add_state(rule);
    for (const auto& [beginning, state] : states) {
      write_bytes(rule, state, [&, begun = beginning](int byte) { return target(states, part, mark, behind, begun, byte); });
      builder_.epsilon(rule, state, to);
      if (part.id >= 0) builder_.token(rule, state, behind, part.id);
      write_tokens(part, rule, state, states[""]);
    }
    return states;
  }

  void write_text_unless(const GrammarPart& part, int rule, int from, int to) {
    const TextStates states = write_text(part, {}, -1, rule, to);
    const int begin = builder_.add_state(rule);
    constexpr std::string_view kSpace = " \t\n\v\f\r";
    write_bytes(rule, begin, [&](int byte) {
      const char c = static_cast<char>(byte);
      return kSpace.find(c) != std::string_view::npos ? begin : part.text.find(c) != std::string::npos ? -1 : target(states, part, {}, -1, {}, byte);
    });
    write_tokens(part, rule, begin, begin);
    builder_.epsilon(rule, begin, to);
    builder_.epsilon(rule, from, begin);
  }
  MachineBuilder& builder_;
  JsonText json_, tag_json_;
  const TokenBytes& tokens_;
  const GrammarOptions& options_;
  SchemaWork work_;  // of all schemas in the grammar
};
}  // namespace

TokenGrammar::TokenGrammar(std::unique_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
TokenGrammar::~TokenGrammar() = default;
const TokenBytes& TokenGrammar::tokens() const { return *compiled_->tokens; }
std::size_t TokenGrammar::states() const { return compiled_->machine.states.size() - 1; }
std::size_t TokenGrammar::bytes() const { return compiled_->machine.bytes(); }

std::shared_ptr<const TokenGrammar> TokenGrammar::from_part(const GrammarPart& part, std::shared_ptr<const TokenBytes> tokens, const GrammarOptions& options) {
  if (options.max_depth < 1 || options.max_depth > 512) fail(ErrorCode::invalid_argument, "max_depth is {}, allowed is 1 to 512", options.max_depth);
  MachineBuilder builder({});
  const int rule = builder.add_rule();
  PartWriter(builder, *tokens, options).write(part, rule, MachineBuilder::kStart, MachineBuilder::kAccept);
  auto compiled = std::make_unique<const Compiled>(builder.build(rule, options.max_depth), std::move(tokens));
  return std::shared_ptr<const TokenGrammar>(new TokenGrammar(std::move(compiled)));
}

std::shared_ptr<const TokenGrammar> TokenGrammar::from_schema(const ordered_json& schema, std::shared_ptr<const TokenBytes> tokens,
                                                              const GrammarOptions& options) {
  SchemaReader::check_size(schema);  // before it is copied, which recurses
  return from_part(GrammarPart::schema(schema), std::move(tokens), options);
}

std::shared_ptr<const TokenGrammar> TokenGrammar::json_object(std::shared_ptr<const TokenBytes> tokens, const GrammarOptions& options) {
  return from_part(GrammarPart::json_object(), std::move(tokens), options);
}

struct GrammarMatcher::State {
  std::shared_ptr<const TokenGrammar> grammar;
  Stacks stacks;
  std::vector<std::int32_t> tops;
  bool ended = false;

  explicit State(std::shared_ptr<const TokenGrammar> of) : grammar(std::move(of)), stacks(grammar->compiled().machine) {
    const Machine& m = grammar->compiled().machine;
    const bool container = m.rules[static_cast<std::size_t>(m.states[static_cast<std::size_t>(m.start)].rule)].container;
    tops = {stacks.push(Stacks::kBottom, m.start, 0, container)};
  }
  void over(std::string_view bytes, std::vector<std::int32_t>& at) {
    std::vector<std::int32_t> next;
    for (char byte : bytes) {
      next.clear();
      for (std::int32_t top : at) stacks.step(top, static_cast<std::uint8_t>(byte), next);
      at.swap(next);
      if (at.empty()) return;
    }
  }
};

GrammarMatcher::GrammarMatcher(std::shared_ptr<const TokenGrammar> grammar) : state_(std::make_unique<State>(std::move(grammar))) {}
GrammarMatcher::~GrammarMatcher() = default;
GrammarMatcher::GrammarMatcher(const GrammarMatcher& other) : state_(std::make_unique<State>(*other.state_)) {}

void GrammarMatcher::allowed(std::span<std::uint32_t> words) {
  const TokenGrammar::Compiled& compiled = state_->grammar->compiled();
  const auto set = [&](std::int32_t token) {
    if (const auto word = static_cast<std::size_t>(token) / 32; word < words.size()) words[word] |= 1u << token % 32;
  };
  if (state_->ended) return;
  for (std::int32_t top : state_->tops) compiled.masks.allowed(state_->stacks, top, words);
  if (!compiled.machine.tokens.empty()) {
    std::vector<std::int32_t> tokens;
    for (std::int32_t top : state_->tops) state_->stacks.tokens_at(top, tokens);
    for (std::int32_t token : tokens) set(token);
  }
  if (complete())
    for (std::int32_t token : compiled.tokens->end_tokens()) set(token);
  state_->stacks.compact(state_->tops);
}

bool GrammarMatcher::accept(std::int32_t token) {
  const TokenGrammar::Compiled& compiled = state_->grammar->compiled();
  if (state_->ended || token < 0 || token >= compiled.tokens->size()) return false;
  if (compiled.tokens->is_end(token)) return state_->ended = complete();
  std::vector<std::int32_t> next;
  if (const std::string& bytes = compiled.tokens->bytes(token); !bytes.empty()) {
    next = state_->tops;
    state_->over(bytes, next);
  }
  if (!compiled.machine.tokens.empty())
    for (std::int32_t top : state_->tops) state_->stacks.step_token(top, token, next);
  const bool taken = !next.empty();
  if (taken) state_->tops = std::move(next);
  state_->stacks.compact(state_->tops);
  return taken;
}

bool GrammarMatcher::accept_bytes(std::string_view bytes) {
  if (state_->ended) return false;
  std::vector<std::int32_t> next = state_->tops;
  state_->over(bytes, next);
  const bool taken = !next.empty();
  if (taken) state_->tops = std::move(next);
  state_->stacks.compact(state_->tops);
  return taken;
}

bool GrammarMatcher::complete() const {
  if (state_->ended) return false;
  for (std::int32_t top : state_->tops)
    if (state_->stacks.may_end(top)) return true;
  return false;
}

std::int64_t GrammarMatcher::shortest_end() const {
  std::int64_t least = kNoMaximum;
  for (std::int32_t top : state_->tops) {
    std::int64_t bytes = 0;
    for (std::int32_t at = top; at != Stacks::kBottom; at = state_->stacks.frame(at).below) bytes += state_->stacks.state_of(at).distance;
    least = std::min(least, bytes);
  }
  return least;
}

bool GrammarMatcher::ended() const { return state_->ended; }

}  // namespace lockstep
