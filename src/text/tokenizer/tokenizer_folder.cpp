// Finding the tokenizer of a model folder: tokenizer.json, or a rank file of tiktoken beside tokenizer_config.json.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "base/error.h"
#include "base/hub_name.h"
#include "base/file.h"
#include "text/tokenizer/tiktoken.h"
#include "text/tokenizer/tokenizer.h"
#include "text/utf8.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

fs::path rank_file(const fs::path& folder) {
  std::error_code error;
  for (const char* name : {"tiktoken.model", "tokenizer.model", "qwen.tiktoken"}) {
    if (fs::is_regular_file(folder / name, error)) return folder / name;
  }
  return {};
}

nlohmann::json read_config(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return nullptr;
  return with_context(fmt::format("reading {}", path.string()), [&] {
    try {
      return nlohmann::json::parse(read_file(path, kMaxConfigBytes));
    } catch (const nlohmann::json::exception& e) {
      fail(ErrorCode::corrupt_file, "the file is not JSON: {}", utf8_excerpt(e.what()));
    }
  });
}
}  // namespace

bool Tokenizer::in_folder(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "tokenizer.json", error) || !rank_file(folder).empty();
}

Tokenizer Tokenizer::from_folder(const fs::path& folder) {
  refuse_hub_name(folder.string());
  std::error_code error;
  if (fs::exists(folder / "tokenizer.json", error)) return from_file(folder / "tokenizer.json");
  const fs::path ranks = rank_file(folder);
  if (ranks.empty()) {
    fail(ErrorCode::not_found, "'{}' holds no tokenizer.json, tiktoken.model, tokenizer.model or qwen.tiktoken", folder.string());
  }
  const nlohmann::json config = read_config(folder / "tokenizer_config.json");
  return with_context(fmt::format("reading {}", ranks.string()), [&] {
    const std::string text = read_file(ranks, kMaxFileBytes);
    // A rank file is text; SentencePiece's model is a protobuf message, whose first byte is 0x0A.
    if (text.starts_with('\n')) fail(ErrorCode::unsupported, "the file is a SentencePiece model, supported is tokenizer.json or a rank file of tiktoken");
    return from_tiktoken(text, tiktoken_settings(read_ranks(text), config));
  });
}

}  // namespace lockstep
