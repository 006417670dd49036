#include "serving/grammars.h"

#include <typeinfo>

namespace lockstep {

namespace {
class GrammarConstraint : public TokenConstraint {
 public:
  explicit GrammarConstraint(std::shared_ptr<const TokenGrammar> grammar) : grammar_(std::move(grammar)), matcher_(std::in_place, grammar_) {}
  void allowed(std::span<std::uint32_t> words) override { matcher_->allowed(words); }
  void accept(std::int32_t token) override {
    if (!matcher_->accept(token)) fail(ErrorCode::internal, "token {} was sampled and the grammar does not allow it", token);
    since_.push_back(token);
  }
  void truncate(std::int64_t count) override {
    since_.resize(static_cast<std::size_t>(count - settled_count_));
    if (settled_) matcher_.emplace(*settled_);
    else matcher_.emplace(grammar_);
    for (const std::int32_t token : since_) matcher_->accept(token);
  }
  void settle() override {
    settled_.emplace(*matcher_);
    settled_count_ += static_cast<std::int64_t>(since_.size());
    since_.clear();
  }

 private:
  std::shared_ptr<const TokenGrammar> grammar_;
  std::optional<GrammarMatcher> matcher_, settled_;  // settled: at the last settle(), from where tokens are accepted again; none: the start
  std::int64_t settled_count_ = 0;
  std::vector<std::int32_t> since_;
};

// Tells parts apart: two of the same meaning may have other keys, two of other meanings never the same.
void describe(const GrammarPart& part, std::string& key) {
  key += fmt::format("({} {} {} {} {}:", static_cast<int>(part.kind), part.id, part.least, part.most, part.text.size());
  key += part.text;
  if (part.json) {
    const std::string text = part.json->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    key += fmt::format("{}:{}", text.size(), text);
  }
  for (const std::string& text : part.never) key += fmt::format("!{}:{}", text.size(), text);
  for (const std::int32_t id : part.tokens) key += fmt::format("#{}", id);
  for (const GrammarPart& p : part.parts) describe(p, key);
  key += ')';
}
}  // namespace

std::shared_ptr<TokenConstraint> make_constraint(std::shared_ptr<const TokenGrammar> grammar) {
  return std::make_shared<GrammarConstraint>(std::move(grammar));
}

Grammars::Grammars(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::int32_t> end_tokens, std::size_t most_bytes)
    : tokenizer_(std::move(tokenizer)), end_tokens_(std::move(end_tokens)), most_bytes_(most_bytes) {}

std::size_t Grammars::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void Grammars::drop_last() {
  bytes_ -= kept_.back().bytes();
  places_.erase(kept_.back().key);
  kept_.pop_back();
}

std::shared_ptr<const TokenBytes> Grammars::tokens() {
  if (!tokenizer_) fail(ErrorCode::unsupported, "a grammar needs a tokenizer.json, and the model has none");
  const std::lock_guard lock(mutex_);
  if (!tokens_) tokens_ = TokenBytes::of(*tokenizer_, end_tokens_, most_bytes_);
  return tokens_;
}

std::shared_ptr<const TokenGrammar> Grammars::of_schema(const nlohmann::ordered_json& schema, const GrammarOptions& options) {
  return of_part(GrammarPart::schema(schema), options);
}

std::shared_ptr<const TokenGrammar> Grammars::of_part(const GrammarPart& part, const GrammarOptions& options) {
  std::string key = fmt::format("{} {} ", options.max_depth, options.closed_objects);
  describe(part, key);
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = places_.find(key); it != places_.end()) {
      kept_.splice(kept_.begin(), kept_, it->second);
      if (it->second->refusal) throw Error(*it->second->refusal);
      return it->second->grammar;
    }
  }
  // Compiled without the lock: others need not wait, and two that compile the same agree.
  const std::shared_ptr<const TokenBytes> bytes = tokens();
  Kept made{key, nullptr};
  try {
    made.grammar = TokenGrammar::from_part(part, bytes, options);
  } catch (const Error& e) {
    // Who has left, or has no memory left, says nothing of the schema: the next who asks has it compiled.
    if (e.code() == ErrorCode::cancelled || typeid(e) != typeid(Error)) throw;
    made.refusal = e;
  }
  const std::shared_ptr<const TokenGrammar> grammar = made.grammar;
  const std::optional<Error> refusal = made.refusal;
  {
    const std::lock_guard lock(mutex_);
    if (!places_.contains(key)) {
      bytes_ += made.bytes();
      kept_.push_front(std::move(made));
      places_.emplace(std::move(key), kept_.begin());
    }
    while (kept_.size() > kKept || bytes_ > most_bytes_) drop_last();
  }
  if (refusal) throw Error(*refusal);
  return grammar;
}

}  // namespace lockstep
