// Lets tests in Python use grammars: JSON lines in, JSON lines out. Built with the tests (src/text/folder.cmake).
//   schema_bridge FILE < requests
// FILE is a tokenizer.json (its last special token ends a text), or {"bytes": [text, ...], "end": id}: the bytes of
// each token as Latin-1.
// {"schema": ..., "walks": n, "seed": s, "budget": t, "max_depth": d, "closed": b}: n random walks through the masks,
// each token drawn
//   from those allowed; beyond t tokens one is drawn that brings the end nearer. -> {"texts": [...], "tokens": [...],
//   "states": n} or
//   {"error": message, "code": name}. "free": true draws from all tokens instead (a negative control).
// {"schema": ..., "accept": [texts]}: whether each text, encoded by the tokenizer, is let through token by token, each
// token standing
//   in the mask before it. -> {"accepted": [true, ...]}; "accept_tokens": [[id, ...]]: the same of tokens.
// {"schema": ..., "time": [[id, ...], ...]}: masks along these texts -> {"first_us": [...], "again_us": [...]}, one a
// step.
#include <nlohmann/json.hpp>

#include <ctime>
#include <fstream>
#include <iostream>

#include "base/error.h"
#include "base/philox.h"
#include "text/grammar/code_point_set.h"
#include "text/grammar/token_grammar.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

class Bridge {
 public:
  explicit Bridge(const char* path) {
    const Json file = Json::parse(std::ifstream(path));
    if (file.contains("bytes")) {
      std::vector<std::string> bytes;
      for (const Json& text : file["bytes"]) {
        bytes.emplace_back();
        for (char32_t c : code_points_of(text.get<std::string>())) bytes.back() += static_cast<char>(c);
      }
      tokens_ = std::make_shared<const TokenBytes>(std::move(bytes), std::vector<std::int32_t>{file["end"].get<std::int32_t>()});
      return;
    }
    tokenizer_.emplace(Tokenizer::from_file(path));
    std::int32_t end = -1;
    for (std::int32_t id = 0; id < tokenizer_->vocab_size(); ++id)
      if (tokenizer_->is_special(id)) end = id;
    tokens_ = TokenBytes::of(*tokenizer_, std::vector<std::int32_t>{end});
  }

  Json answer(const Json& request) {
    const double begin = now_ms();
    GrammarOptions options;
    options.max_depth = request.value("max_depth", options.max_depth);
    options.closed_objects = request.value("closed", false);
    Json out;
    try {
      const auto grammar = TokenGrammar::from_schema(request["schema"], tokens_, options);
      out["states"] = grammar->states();
      out["compile_ms"] = since(begin);
      if (request.contains("walks")) walks(request, grammar, out);
      if (request.contains("accept"))
        for (const Json& text : request["accept"]) out["accepted"].push_back(accepts(grammar, tokenizer_->encode(text.get<std::string>(), false, false)));
      if (request.contains("accept_tokens"))
        for (const Json& ids : request["accept_tokens"]) out["accepted"].push_back(accepts(grammar, ids.get<std::vector<std::int32_t>>()));
      if (request.contains("time"))
        for (const char* name : {"first_us", "again_us"})
          for (const Json& ids : request["time"]) time(grammar, ids.get<std::vector<std::int32_t>>(), out[name]);
    } catch (const Error& e) {
      return {{"error", e.what()}, {"code", error_code_name(e.code())}, {"compile_ms", since(begin)}};
    }
    return out;
  }

 private:
  // Processor time, so that a busy machine does not count.
  static double now_ms() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
  }
  static double since(double begin) { return now_ms() - begin; }
  static bool stands(const std::vector<std::uint32_t>& words, std::int32_t t) { return words[static_cast<std::size_t>(t / 32)] >> t % 32 & 1; }

  void time(const std::shared_ptr<const TokenGrammar>& grammar, const std::vector<std::int32_t>& ids, Json& out) {
    GrammarMatcher matcher(grammar);
    std::vector<std::uint32_t> words(tokens_->words());
    for (std::int32_t token : ids) {
      const double begin = now_ms();
      std::fill(words.begin(), words.end(), 0);
      matcher.allowed(words);
      const bool taken = stands(words, token) && matcher.accept(token);
      out.push_back(since(begin) * 1000);
      if (!taken) fail(ErrorCode::internal, "token {} is not allowed in a text that is timed", token);
    }
  }

  bool accepts(const std::shared_ptr<const TokenGrammar>& grammar, const std::vector<std::int32_t>& ids) {
    GrammarMatcher matcher(grammar);
    std::vector<std::uint32_t> words(tokens_->words());
    for (std::int32_t token : ids) {
      std::fill(words.begin(), words.end(), 0);
      matcher.allowed(words);
      const bool allowed = stands(words, token);
      if (matcher.accept(token) != allowed) fail(ErrorCode::internal, "mask and matcher disagree over token {}", token);
      if (!allowed) return false;
    }
    return matcher.complete();
  }

  // Of the tokens that are one byte, and some others, one after which the end is nearest.
  std::int32_t nearest(const GrammarMatcher& matcher, const std::vector<std::int32_t>& allowed, RandomSequence& draws) const {
    std::int32_t best = -1;
    std::int64_t least = 0;
    for (std::int32_t id : allowed) {
      if (tokens_->is_end(id) || (tokens_->bytes(id).size() > 1 && draws.below(16) != 0 && best >= 0)) continue;
      GrammarMatcher next(matcher);
      if (!next.accept(id)) fail(ErrorCode::internal, "token {} is in the mask and not accepted", id);
      const std::int64_t left = next.shortest_end();
      if (best >= 0 && (left > least || (left == least && draws.below(4) != 0))) continue;
      best = id;
      least = left;
    }
    return best;
  }

  void walks(const Json& request, const std::shared_ptr<const TokenGrammar>& grammar, Json& out) {
    RandomSequence draws(request.value("seed", 0u), RandomStream::fuzz);
    const bool free = request.value("free", false);
    const int budget = request.value("budget", 40);
    std::vector<std::uint32_t> words(tokens_->words());
    std::int64_t steps = 0;
    for (int w = request["walks"]; w > 0; --w) {
      GrammarMatcher matcher(grammar);
      std::string text;
      for (int t = 0;; ++t, ++steps) {
        if (t > budget + 4000) fail(ErrorCode::internal, "a walk did not end: {}", text.substr(0, 2000));
        std::fill(words.begin(), words.end(), free ? ~0u : 0u);
        if (!free) matcher.allowed(words);
        std::vector<std::int32_t> allowed;
        for (std::int32_t id = 0; id < tokens_->size(); ++id)
          if (stands(words, id) && (!free || tokens_->is_end(id) || !tokens_->bytes(id).empty())) allowed.push_back(id);
        if (allowed.empty()) fail(ErrorCode::internal, "nothing is allowed after: {}", text);
        const bool may_end = stands(words, tokens_->end_tokens()[0]);
        if (!free && may_end != matcher.complete()) fail(ErrorCode::internal, "the end token and complete() disagree after: {}", text);
        std::int32_t token;
        if (may_end && (t > budget || draws.below(4) == 0)) {
          token = tokens_->end_tokens()[0];
        } else if (t > budget) {
          token = nearest(matcher, allowed, draws);
        } else {
          token = allowed[draws.below(static_cast<std::uint32_t>(allowed.size()))];
        }
        if (!free && !matcher.accept(token)) fail(ErrorCode::internal, "token {} is in the mask and not accepted after: {}", token, text);
        if (tokens_->is_end(token)) break;
        text += tokens_->bytes(token);
      }
      // Bytes as Latin-1, so that broken UTF-8 reaches the test as it is.
      std::string escaped;
      for (char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x80) escaped += c;
        else escaped += static_cast<char>(0xc0 | byte >> 6), escaped += static_cast<char>(0x80 | (byte & 0x3f));
      }
      out["texts"].push_back(escaped);
    }
    out["steps"] = steps;
  }

  std::optional<Tokenizer> tokenizer_;
  std::shared_ptr<const TokenBytes> tokens_;
};
}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: schema_bridge FILE < requests\n";
    return 2;
  }
  try {
    lockstep::Bridge bridge(argv[1]);
    for (std::string line; std::getline(std::cin, line);) std::cout << bridge.answer(nlohmann::ordered_json::parse(line)).dump() << std::endl;
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}
