// Rank files: their lines, merging by definition, and the folders they come in. Real ones are compared with tiktoken in
// tests/oracle.
#include "text/tokenizer/tiktoken.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/folder_files.h"

namespace lockstep {
namespace {
using Ids = std::vector<std::int32_t>;

std::string base64(std::string_view bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (int k = 3; k >= 0; --k) text += kDigits[bits >> (6 * k) & 63];
  }
  for (std::size_t i = 0; i < (3 - bytes.size() % 3) % 3; ++i) text[text.size() - 1 - i] = '=';
  return text;
}

std::string line(std::string_view bytes, int rank) { return base64(bytes) + " " + std::to_string(rank) + "\n"; }

const std::vector<std::string> kWords = {"ab", "bc", "abc", "ca", "cab", "abcab", "aa", "aaaa", "\xC3\xA9", " a", " ab"};

std::string ranks() {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += line(std::string(1, static_cast<char>(byte)), byte);
  for (std::size_t i = 0; i < kWords.size(); ++i) text += line(kWords[i], 256 + static_cast<int>(i));
  return text;
}

TiktokenSettings settings() { return {"\\s?\\p{L}+|\\S|\\s", {{"<|end|>", 300}, {"<|begin|>", 301}}, false, {301}}; }

// tiktoken's rule: again and again the leftmost of the neighbours whose bytes together have the lowest rank.
Ids tiktoken_merge_slowly(const std::string& piece) {
  std::map<std::string, int> known;
  for (int byte = 0; byte < 256; ++byte) known[std::string(1, static_cast<char>(byte))] = byte;
  for (std::size_t i = 0; i < kWords.size(); ++i) known[kWords[i]] = 256 + static_cast<int>(i);
  if (known.contains(piece)) return {known[piece]};
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  for (;;) {
    int best = 1 << 30;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it = known.find(parts[i] + parts[i + 1]);
      if (it != known.end() && it->second < best) best = it->second, at = i;
    }
    if (best == 1 << 30) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(known[part]);
  return ids;
}

TEST(Tiktoken, MergesByDefinition) {
  const Tokenizer tokenizer = Tokenizer::from_tiktoken(ranks(), settings());
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string piece;
    for (std::size_t n = 1 + random() % 60; piece.size() < n;) piece += "abc"[random() % 3];
    EXPECT_EQ(tokenizer.encode(piece, false), tiktoken_merge_slowly(piece)) << piece;
  }
}

TEST(Tiktoken, SpecialsPrefixAndText) {
  const Tokenizer tokenizer = Tokenizer::from_tiktoken(ranks(), settings());
  EXPECT_EQ(tokenizer.encode("abc<|end|>", true), (Ids{301, 258, 300}));
  EXPECT_EQ(tokenizer.encode("<|end|>", false, false).size(), 7u);
  EXPECT_EQ(tokenizer.vocab_size(), 302);
  EXPECT_TRUE(tokenizer.is_special(300));
  EXPECT_EQ(tokenizer.token_bytes(265), " a");
  EXPECT_EQ(tokenizer.decode(Ids{264, 300}, false), "\xC3\xA9<|end|>");
  EXPECT_EQ(tokenizer.decode(Ids{264, 300, 290}, true), "\xC3\xA9");
}

TEST(Tiktoken, ComposesFirstWhenAsked) {
  TiktokenSettings nfc = settings();
  nfc.nfc = true;
  EXPECT_EQ(Tokenizer::from_tiktoken(ranks(), nfc).encode("e\xCC\x81", false), Ids{264});
  EXPECT_EQ(Tokenizer::from_tiktoken(ranks(), settings()).encode("e\xCC\x81", false).size(), 3u);
}

void expect_tiktoken_error(ErrorCode code, const std::string& names, const std::function<void()>& work) {
  try {
    work();
    ADD_FAILURE() << "no error that names " << names;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(names), std::string::npos) << e.what();
  }
}

TEST(Tiktoken, RefusesByLine) {
  const auto read = [](const std::string& text) { return [text] { Tokenizer::from_tiktoken(text, settings()); }; };
  expect_tiktoken_error(ErrorCode::corrupt_file, "no ranks", read(""));
  expect_tiktoken_error(ErrorCode::corrupt_file, "line 257", read(ranks().insert(ranks().find(base64("ab")), "nonsense\n")));
  expect_tiktoken_error(ErrorCode::corrupt_file, "line 1", read("YQ== x\n"));
  expect_tiktoken_error(ErrorCode::corrupt_file, "line 1", read("YQ== -1\n"));
  expect_tiktoken_error(ErrorCode::corrupt_file, "line 1", read("YQ= 1\n"));
  expect_tiktoken_error(ErrorCode::corrupt_file, "line 1", read("Y*== 1\n"));
  expect_tiktoken_error(ErrorCode::corrupt_file, "line 1", read("YQ== 99999999999999\n"));
  expect_tiktoken_error(ErrorCode::corrupt_file, "twice", read(ranks() + line("ab", 290)));
  expect_tiktoken_error(ErrorCode::corrupt_file, "twice", read(ranks() + line("abab", 256)));
  expect_tiktoken_error(ErrorCode::corrupt_file, "lack the byte", read(line("a", 0)));
  expect_tiktoken_error(ErrorCode::corrupt_file, "2000 bytes", read(ranks() + line(std::string(2000, 'a'), 290)));
  TiktokenSettings taken = settings();
  taken.specials.emplace_back("<|x|>", 256);
  expect_tiktoken_error(ErrorCode::corrupt_file, "'<|x|>'", [&] { Tokenizer::from_tiktoken(ranks(), taken); });
  taken = settings();
  taken.prefix = {299};
  expect_tiktoken_error(ErrorCode::corrupt_file, "299", [&] { Tokenizer::from_tiktoken(ranks(), taken); });
}

TEST(Tiktoken, DamagedFilesAreErrorsOrTokenizers) {
  const std::string text = ranks();
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::string damaged = text.substr(0, random() % 4 ? text.size() : random() % text.size());
    for (int k = 0; k < 3 && !damaged.empty(); ++k) damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
    try {
      Tokenizer::from_tiktoken(damaged, settings()).encode("abcabc \xC3\xA9", true);
    } catch (const Error&) {
    }
  }
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-tiktoken-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const char* name, const std::string& text) const { std::ofstream(path / name, std::ios::binary) << text; }
  std::filesystem::path path;
};

TEST(Tiktoken, Folders) {
  const Folder folder;
  EXPECT_FALSE(Tokenizer::in_folder(FolderOnDisk(folder.path)));
  expect_tiktoken_error(ErrorCode::not_found, "tokenizer.json", [&] { Tokenizer::from_folder(folder.path); });
  folder.write("tiktoken.model", ranks());
  EXPECT_TRUE(Tokenizer::in_folder(FolderOnDisk(folder.path)));
  expect_tiktoken_error(ErrorCode::unsupported, "267 ranks", [&] { Tokenizer::from_folder(folder.path); });
  folder.write("tokenizer_config.json", R"({"tokenizer_class":"TikTokenTokenizer","added_tokens_decoder":{"268":{"content":"[EOS]"}}})");
  const Tokenizer kimi = Tokenizer::from_folder(folder.path);
  EXPECT_EQ(kimi.token_id("[EOS]"), 268);
  EXPECT_EQ(kimi.token_text(269), "<|reserved_token_269|>");
  EXPECT_EQ(kimi.vocab_size(), 267 + 256);
  folder.write("tokenizer_config.json", R"({"tokenizer_class":"NewTokenizer"})");
  expect_tiktoken_error(ErrorCode::unsupported, "'NewTokenizer'", [&] { Tokenizer::from_folder(folder.path); });
  folder.write("tokenizer_config.json", R"({"tokenizer_class":"ChatGLM4Tokenizer","added_tokens_decoder":{"268":5}})");
  expect_tiktoken_error(ErrorCode::corrupt_file, "added_tokens_decoder", [&] { Tokenizer::from_folder(folder.path); });
  folder.write("tokenizer_config.json", "{");
  expect_tiktoken_error(ErrorCode::corrupt_file, "not JSON", [&] { Tokenizer::from_folder(folder.path); });
  folder.write("tiktoken.model", "\x0A\x0E\x0A\x05<unk>");
  folder.write("tokenizer_config.json", "{}");
  expect_tiktoken_error(ErrorCode::unsupported, "SentencePiece", [&] { Tokenizer::from_folder(folder.path); });
}

}  // namespace
}  // namespace lockstep
