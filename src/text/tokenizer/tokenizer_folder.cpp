// Finding the tokenizer of a model folder: tokenizer.json, or a rank file of tiktoken beside tokenizer_config.json.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "base/error.h"
#include "base/hub_name.h"
#include "text/tokenizer/tiktoken.h"
#include "text/tokenizer/tokenizer.h"
#include "text/utf8.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

// The name of the folder's rank file; empty: it has none.
std::string rank_file(const FolderFiles& files) {
  for (const char* name : {"tiktoken.model", "tokenizer.model", "qwen.tiktoken"}) {
    if (files.has(name)) return name;
  }
  return {};
}

nlohmann::json read_config(const FolderFiles& files, const std::string& name) {
  if (!files.has(name)) return nullptr;
  return with_context(fmt::format("reading {}", files.place(name)), [&] {
    try {
      return nlohmann::json::parse(files.read(name, kMaxConfigBytes));
    } catch (const nlohmann::json::exception& e) {
      fail(ErrorCode::corrupt_file, "the file is not JSON: {}", utf8_excerpt(e.what()));
    }
  });
}
}  // namespace

bool Tokenizer::in_folder(const FolderFiles& files) { return files.has("tokenizer.json") || !rank_file(files).empty(); }

Tokenizer Tokenizer::from_folder(const fs::path& folder) {
  refuse_hub_name(folder.string());
  return from_folder(FolderOnDisk(folder));
}

Tokenizer Tokenizer::from_folder(const FolderFiles& files) {
  if (files.has("tokenizer.json"))
    return with_context(fmt::format("reading {}", files.place("tokenizer.json")), [&] { return from_json(files.read("tokenizer.json", kMaxFileBytes)); });
  const std::string ranks = rank_file(files);
  if (ranks.empty()) {
    fail(ErrorCode::not_found, "'{}' holds no tokenizer.json, tiktoken.model, tokenizer.model or qwen.tiktoken", files.label());
  }
  const nlohmann::json config = read_config(files, "tokenizer_config.json");
  return with_context(fmt::format("reading {}", files.place(ranks)), [&] {
    const std::string text = files.read(ranks, kMaxFileBytes);
    // A rank file is text; SentencePiece's model is a protobuf message, whose first byte is 0x0A.
    if (text.starts_with('\n')) fail(ErrorCode::unsupported, "the file is a SentencePiece model, supported is tokenizer.json or a rank file of tiktoken");
    return from_tiktoken(text, tiktoken_settings(read_ranks(text), config));
  });
}

}  // namespace lockstep
