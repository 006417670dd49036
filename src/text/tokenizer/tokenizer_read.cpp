// Reading tokenizer.json.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer/json_object.h"
#include "text/tokenizer/tokenizer_state.h"
#include "text/utf8.h"

namespace lockstep {

using nlohmann::json;

namespace {
constexpr std::size_t kMaxAddedTokens = 1 << 20;
constexpr std::size_t kMaxAddedBytes = 256;

AddedToken read_added_token(const json& value, const std::string& where) {
  JsonObject object(value, where);
  AddedToken token;
  token.id = static_cast<std::int32_t>(object.integer("id", 0, Bpe::kMaxId));
  token.content = object.text("content");
  if (token.content.empty() || token.content.size() > kMaxAddedBytes) {
    fail(ErrorCode::corrupt_file, "{} has {} bytes, allowed is 1 to {}", object.path("content"), token.content.size(), kMaxAddedBytes);
  }
  token.single_word = object.flag("single_word", false);
  token.lstrip = object.flag("lstrip", false);
  token.rstrip = object.flag("rstrip", false);
  token.special = object.flag("special", false);
  token.normalized = object.flag("normalized", !token.special);
  object.finish();
  return token;
}

// Hugging Face gives an added token the id of its text in the vocabulary, or else the next free one, whatever the file
// says; a file that says something else would mean other ids there than here.
void read_added_tokens(const json& values, Tokenizer::State& state) {
  if (values.size() > kMaxAddedTokens) {
    fail(ErrorCode::corrupt_file, "added_tokens has {} entries, allowed is at most {}", values.size(), kMaxAddedTokens);
  }
  const Vocabulary& vocabulary = state.bpe.vocabulary();
  std::int32_t largest = -1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string where = fmt::format("added_tokens[{}]", i);
    AddedToken token = read_added_token(values[i], where);
    if (state.added.find(token.content)) {
      fail(ErrorCode::corrupt_file, "{}.content is '{}', which stands there twice", where, utf8_excerpt(token.content));
    }
    const std::int32_t expected = state.bpe.id_of(token.content).value_or(std::max(vocabulary.size(), largest + 1));
    if (token.id != expected) {
      fail(ErrorCode::corrupt_file, "{}.id is {} for '{}', allowed is {} (its id in the vocabulary, or the next free one)", where, token.id,
           utf8_excerpt(token.content), expected);
    }
    if (const std::string_view taken = vocabulary.text_of(expected); !taken.empty() && taken != token.content) {
      fail(ErrorCode::corrupt_file, "{}.id {} is taken by '{}'", where, expected, utf8_excerpt(taken));
    }
    largest = std::max(largest, expected);
    state.id_limit = std::max(state.id_limit, expected + 1);
    token.found_as = token.normalized ? state.normalizer.apply(token.content) : token.content;
    if (token.found_as.empty()) fail(ErrorCode::unsupported, "{}.content is '{}', which the normalizer removes", where, utf8_excerpt(token.content));
    state.added.add(std::move(token));
  }
}
}  // namespace

Tokenizer Tokenizer::from_file(const std::filesystem::path& path) {
  return with_context(fmt::format("reading {}", path.string()), [&] { return from_json(read_file(path, kMaxFileBytes)); });
}

Tokenizer Tokenizer::from_json(std::string_view text) {
  if (text.size() > kMaxFileBytes) {
    fail(ErrorCode::resource_exhausted, "tokenizer.json has {} bytes, allowed is at most {}", text.size(), kMaxFileBytes);
  }
  json root;
  try {
    root = json::parse(text);
  } catch (const json::exception& e) {
    fail(ErrorCode::corrupt_file, "tokenizer.json is not JSON: {}", utf8_excerpt(e.what()));
  }
  JsonObject object(root, "");
  object.only("version", "1.0");
  object.any("truncation"), object.any("padding");
  PreTokenizer pre_tokenizer = PreTokenizer::from_json(object.any("pre_tokenizer"));
  const bool byte_level = pre_tokenizer.byte_level();
  auto state = std::make_unique<State>(State{Bpe::from_json(object.object("model"), byte_level),
                                             Normalizer::from_json(object.any("normalizer")),
                                             std::move(pre_tokenizer),
                                             {},
                                             PostProcessor::from_json(object.any("post_processor")),
                                             Decoder::from_json(object.any("decoder"))});
  state->id_limit = state->bpe.vocabulary().id_limit();
  if (object.has("added_tokens")) read_added_tokens(object.array("added_tokens"), *state);
  object.any("added_tokens");
  state->find_mergeable_specials();
  for (const auto* ids : {&state->post_processor.prefix(), &state->post_processor.suffix()}) {
    for (const std::int32_t id : *ids) {
      if (state->text_of(id).empty()) fail(ErrorCode::corrupt_file, "post_processor adds id {}, which no token has", id);
    }
  }
  object.finish();
  return Tokenizer(std::move(state));
}

}  // namespace lockstep
