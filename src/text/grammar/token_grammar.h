// A compiled grammar of what a model may write: a JSON schema, any JSON object, or texts around them, as a machine over bytes
// with the tokens of one tokenizer. A GrammarMatcher walks it token by token and says which tokens may come next.
//   auto grammar = TokenGrammar::from_schema(schema, tokens); GrammarMatcher m(grammar); m.allowed(words);
//   m.accept(token);
// A complete text that a matcher accepts is valid UTF-8, valid JSON and valid under the schema (of a text_with: the part behind its marks); a
// schema for which that cannot be guaranteed is refused at compile time, with the place. The forms of output are in docs/schemas.md.
// Immutable; any thread (computed masks are cached beside the tokens, under a lock). Its memory is charged to its client while it lives
// (base/client_work.h).
#pragma once
#include <nlohmann/json.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/grammar/token_bytes.h"

namespace lockstep {

struct GrammarOptions {
  int max_depth = 64;           // objects and arrays inside each other, 1 to 512
  bool closed_objects = false;  // where a schema names properties and does not say additionalProperties, there are no others
};

// A part of a grammar, to build larger ones from:
//   GrammarPart call = GrammarPart::sequence({GrammarPart::literal("<call>"), GrammarPart::schema(parameters),
//   GrammarPart::literal("</call>")});
struct GrammarPart {
  enum class Kind { literal, token, schema, tags, sequence, alternatives, repeat, text_with, text_unless } kind = Kind::literal;
  std::string text;                                    // of a literal: these bytes, in any tokens; of a text_unless: no text begins with one of these
  std::int32_t id = -1;                                // of a token: this one, special or not
  std::shared_ptr<const nlohmann::ordered_json> json;  // of a schema, and of tags
  std::vector<GrammarPart> parts;
  std::int64_t least = 0, most = 0;  // of a repeat of parts[0]
  std::vector<std::string> never;    // of a text_with and a text_unless: texts that must not occur in it
  std::vector<std::int32_t> tokens;  // of both: special ones that may stand in it

  static GrammarPart literal(std::string text);
  static GrammarPart token(std::int32_t id);
  static GrammarPart schema(nlohmann::ordered_json schema);
  static GrammarPart json_object();
  // An object's properties, perhaps none, as tags: BEFORE_KEY name BEFORE_TEXT text AFTER, or BEFORE_VALUE and JSON where the value is no text.
  // `after_text` ends a value for the parser, so no text contains it, and JSON writes "<" as \u003c. If both begin tags are the same, a value is
  // written as text where text/message/argument_types.h reads it as one.
  static GrammarPart tags(nlohmann::ordered_json schema, GrammarPart before_key, GrammarPart before_text, GrammarPart before_value, GrammarPart after,
                          std::string after_text, bool says_which);
  // Any bytes, perhaps none, in which every `mark` (as bytes, or as the token `mark_token`; -1: there is none) is followed by `behind`, and then
  // again by any bytes. The texts in `never` do not occur outside of `behind`.
  static GrammarPart text_with(std::string mark, std::int32_t mark_token, GrammarPart behind, std::vector<std::string> never, std::vector<std::int32_t> tokens);
  // Any bytes, perhaps none, unless the first that is neither white space nor a special token is one of `first`.
  static GrammarPart text_unless(std::string first, std::vector<std::string> never, std::vector<std::int32_t> tokens);
  static GrammarPart sequence(std::vector<GrammarPart> parts);
  static GrammarPart alternatives(std::vector<GrammarPart> parts);
  static GrammarPart repeat(GrammarPart part, std::int64_t least, std::int64_t most);  // most up to 64
};

class TokenGrammar {
 public:
  // invalid_argument, unsupported or resource_exhausted, with the schema's path and keyword.
  static std::shared_ptr<const TokenGrammar> from_schema(const nlohmann::ordered_json& schema, std::shared_ptr<const TokenBytes> tokens,
                                                         const GrammarOptions& options = {});
  static std::shared_ptr<const TokenGrammar> json_object(std::shared_ptr<const TokenBytes> tokens, const GrammarOptions& options = {});
  static std::shared_ptr<const TokenGrammar> from_part(const GrammarPart& part, std::shared_ptr<const TokenBytes> tokens, const GrammarOptions& options = {});
  ~TokenGrammar();

  const TokenBytes& tokens() const;
  std::size_t states() const;  // of the machine
  std::size_t bytes() const;   // of its memory

  struct Compiled;
  const Compiled& compiled() const { return *compiled_; }

 private:
  explicit TokenGrammar(std::unique_ptr<const Compiled> compiled);
  std::unique_ptr<const Compiled> compiled_;
};

// One text on its way through a grammar. Used by one thread at a time; copies go separate ways.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const TokenGrammar> grammar);
  ~GrammarMatcher();
  GrammarMatcher(const GrammarMatcher&);
  GrammarMatcher& operator=(const GrammarMatcher&) = delete;

  // Sets bit t % 32 of word t / 32 for each token that may come next; other bits stay. End tokens are allowed exactly where the text
  // may end. At least one token is allowed until an end token was accepted.
  void allowed(std::span<std::uint32_t> words);
  // False, and nothing changes, for a token that is not allowed.
  bool accept(std::int32_t token);
  // The same for bytes, in pieces of any size.
  bool accept_bytes(std::string_view bytes);
  bool complete() const;  // the text may end here
  bool ended() const;     // an end token was accepted
  // A lower bound of the bytes until the text may end, ignoring minimum counts of items and characters: it falls along every way to an end.
  std::int64_t shortest_end() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
