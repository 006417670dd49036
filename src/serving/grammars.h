// Compiled grammars of a service, so that requests with the same schema compile it once, and a refused schema is refused again at once. The
// tokenizer's tokens as bytes are made when first needed. Beyond a total size, grammars are dropped in the order in which they were compiled. Also
// makes the constraint that the engine uses. Knows no request format. Any thread.
//   Grammars grammars(tokenizer, end_tokens); request.sampling.constraint =
//   make_constraint(grammars.of_schema(schema));
#pragma once
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "engine/constraint.h"
#include "text/grammar/call_grammar.h"
#include "text/grammar/token_grammar.h"

namespace lockstep {

// Each request needs one of its own; it throws nothing but internal errors.
std::shared_ptr<TokenConstraint> make_constraint(std::shared_ptr<const TokenGrammar> grammar);

class Grammars {
 public:
  static constexpr std::size_t kKept = 32, kKeptBytes = std::size_t{64} << 20;
  // `most_bytes`: of compiled grammars, and as much again of masks.
  Grammars(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::int32_t> end_tokens, std::size_t most_bytes = kKeptBytes);

  // Errors are those of TokenGrammar; unsupported without a tokenizer.
  std::shared_ptr<const TokenGrammar> of_schema(const nlohmann::ordered_json& schema, const GrammarOptions& options = {});
  std::shared_ptr<const TokenGrammar> of_part(const GrammarPart& part, const GrammarOptions& options = {});
  std::shared_ptr<const TokenGrammar> json_object() { return of_part(GrammarPart::json_object()); }
  std::shared_ptr<const TokenBytes> tokens();
  std::size_t kept_bytes() const;

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::int32_t> end_tokens_;
  const std::size_t most_bytes_;
  mutable std::mutex mutex_;  // all below
  std::shared_ptr<const TokenBytes> tokens_;
  struct Kept {
    std::string key;
    std::shared_ptr<const TokenGrammar> grammar;  // null: the schema was refused
    std::optional<Error> refusal = {};
    std::size_t bytes() const { return 2 * key.size() + (grammar ? grammar->bytes() : 0); }
  };
  void drop_last();
  std::list<Kept> kept_;  // most recently used first
  std::unordered_map<std::string, std::list<Kept>::iterator> places_;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep
