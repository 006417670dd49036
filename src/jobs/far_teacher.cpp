#include "jobs/far_teacher.h"

#include <atomic>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "jobs/text_alignment.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {
namespace {
using nlohmann::json;
constexpr std::uint64_t kMostAnswerBytes = std::uint64_t{64} << 20;

[[noreturn]] void fault(const std::string& what) { fail(ErrorCode::invalid_argument, "{}", what); }

const json& member(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key))
    fault(fmt::format("its answer has no '{}'; allowed is what /v1/completions answers with echo and logprobs", key));
  return object[key];
}

const json& first_choice(const json& body) {
  const json& choices = member(body, "choices");
  if (!choices.is_array() || choices.empty()) fault("its answer's 'choices' is empty or no list");
  return choices[0];
}

float number_of(const json& value) {
  if (!value.is_number()) fault(fmt::format("a log-probability is {}, allowed is a number", value.dump().substr(0, 40)));
  const double number = value.get<double>();
  if (!(number <= 1e-3) || !std::isfinite(number)) fault(fmt::format("a log-probability is {}, allowed is at most 0", number));
  return static_cast<float>(number);
}

// vLLM: a list by position of objects by token id; the first position has none.
std::vector<float> of_prompt_logprobs(const json& choice, const TeacherText& text) {
  const json& list = member(choice, "prompt_logprobs");
  if (!list.is_array() || list.size() != text.tokens.size())
    fault(fmt::format("its 'prompt_logprobs' are of {} tokens, {} were sent", list.is_array() ? list.size() : 0, text.tokens.size()));
  std::vector<float> logprobs;
  for (std::size_t i = text.first; i < text.tokens.size(); ++i)
    logprobs.push_back(number_of(member(member(list[i], std::to_string(text.tokens[i]).c_str()), "logprob")));
  return logprobs;
}

// The answer of a teacher with the same tokenizer, by position.
TeacherAnswer of_ids(const std::vector<float>& logprobs, const TeacherText& text) {
  TeacherAnswer answer;
  answer.tokens.assign(text.tokens.begin() + static_cast<std::ptrdiff_t>(text.first), text.tokens.end());
  answer.logprobs = logprobs;
  return answer;
}

// Tokens as SentencePiece writes them have U+2581 where the text has a space.
std::string spaces_for_marks(std::string piece) {
  constexpr std::string_view kMark = "\xe2\x96\x81";
  for (std::size_t at; (at = piece.find(kMark)) != std::string::npos;) piece.replace(at, kMark.size(), " ");
  return piece;
}

std::string joined(const std::vector<std::string>& pieces, std::size_t begin, std::size_t end) {
  std::string text;
  for (std::size_t i = begin; i < end; ++i) text += pieces[i];
  return text;
}

// The answer of a teacher with any tokenizer, aligned by characters. The student's special tokens have no characters for the teacher and are not
// judged.
TeacherAnswer of_text(const json& logprobs, const TeacherText& text, const Tokenizer& tokenizer) {
  const json &values = member(logprobs, "token_logprobs"), &offsets = member(logprobs, "text_offset"), &pieces = member(logprobs, "tokens");
  if (!values.is_array() || !offsets.is_array() || !pieces.is_array() || values.size() != offsets.size() || pieces.size() != values.size() || values.empty())
    fault("its lists 'tokens', 'token_logprobs' and 'text_offset' are not of one length");
  std::vector<std::int64_t> theirs;
  for (const json& offset : offsets) {
    if (!offset.is_number_integer() || (!theirs.empty() && offset.get<std::int64_t>() < theirs.back())) fault("'text_offset' is no ascending list of places");
    theirs.push_back(offset.get<std::int64_t>());
  }
  std::size_t before = 0;  // tokens of its own before the text
  const auto piece = [&](std::size_t j) { return pieces[before + j].is_string() ? spaces_for_marks(pieces[before + j].get<std::string>()) : std::string(); };
  theirs.push_back(theirs.back() + characters_in(piece(theirs.size() - 1)));

  std::vector<std::string> own;
  for (const std::int32_t id : text.tokens) own.push_back(tokenizer.is_special(id) ? std::string() : tokenizer.token_bytes(id));
  const std::string whole_text = joined(own, 0, own.size());
  // Some answer with a token that begins a text, and count its letters.
  if (values.size() > 1 && !piece(0).empty() && !whole_text.starts_with(piece(0))) {
    before = 1;
    theirs.erase(theirs.begin());
    for (std::size_t j = theirs.size(); j-- > 0;) theirs[j] -= theirs[0];
  }
  TeacherAnswer answer;
  answer.tokens.assign(text.tokens.begin() + static_cast<std::ptrdiff_t>(text.first), text.tokens.end());
  answer.logprobs.assign(answer.tokens.size(), 0.0f);
  answer.group.assign(answer.tokens.size(), -1);
  std::int32_t groups = 0;
  for (const AlignedTokens& run : align_tokens(character_starts(own), theirs)) {
    if (run.begin < text.first) continue;
    const std::string letters = joined(own, run.begin, run.end);
    std::string said;
    for (std::size_t j = run.other_begin; j < run.other_end; ++j) said += piece(j);
    if (said != letters && said.find("\xef\xbf\xbd") == std::string::npos && said.find("bytes:") == std::string::npos)
      fail(ErrorCode::corrupt_file, "its 'text_offset' says that '{}' stands where the text has '{}'", said.substr(0, 60), letters.substr(0, 60));
    double sum = 0;
    bool whole = true;
    for (std::size_t j = run.other_begin; j < run.other_end; ++j) {
      if (values[before + j].is_null()) whole = false;  // the text's first token, which nothing stands before
      else sum += static_cast<double>(number_of(values[before + j]));
    }
    if (!whole) continue;
    for (std::size_t i = run.begin; i < run.end; ++i) {
      if (tokenizer.is_special(text.tokens[i])) continue;
      answer.logprobs[i - text.first] = static_cast<float>(sum);
      answer.group[i - text.first] = groups;
    }
    ++groups;
  }
  return answer;
}
}  // namespace

TeacherAnswer read_far_answer(const std::string& body, const TeacherText& text, const Tokenizer& tokenizer, bool ids, bool prompt_logprobs) {
  const json parsed = json::parse(body, nullptr, false);
  if (parsed.is_discarded()) fault("its answer is no JSON");
  const json& choice = first_choice(parsed);
  if (prompt_logprobs) return of_ids(of_prompt_logprobs(choice, text), text);
  const json& logprobs = member(choice, "logprobs");
  if (!ids) return of_text(logprobs, text, tokenizer);
  const json& values = member(logprobs, "token_logprobs");
  if (!values.is_array() || values.size() != text.tokens.size())
    fault(fmt::format("it says log-probabilities of {} tokens, {} were sent; a teacher of another tokenizer is sent text (send = \"text\")",
                      values.is_array() ? values.size() : 0, text.tokens.size()));
  std::vector<float> numbers;
  for (std::size_t i = text.first; i < values.size(); ++i) numbers.push_back(number_of(values[i]));
  return of_ids(numbers, text);
}

FarTeacher::FarTeacher(const TeacherSettings& settings, const Tokenizer& tokenizer, StopToken stop)
    : settings_(settings), tokenizer_(tokenizer), stop_(std::move(stop)) {
  if (!settings_.url.starts_with("http://") && !settings_.url.starts_with("https://"))
    fail(ErrorCode::invalid_argument, "the url of teacher '{}' is '{}', allowed is http://HOST... or https://HOST...", settings_.name, settings_.url);
  while (settings_.url.ends_with('/')) settings_.url.pop_back();
  TransferOptions options;
  options.bearer = settings_.key;
  options.stall_seconds = settings_.timeout_seconds;
  options.tries = static_cast<int>(settings_.tries);
  options.stop = stop_;
  transfer_ = std::make_unique<const Transfer>(std::move(options));
}

FarAnswer FarTeacher::ask_one(const TeacherText& text) const {
  const bool ids = settings_.send == "ids", own = settings_.logprobs == "prompt_logprobs";
  json body = {{"model", settings_.model}, {"temperature", 1.0}, {"max_tokens", own ? 1 : 0}};
  if (own) body["prompt_logprobs"] = 0;
  else body["echo"] = true, body["logprobs"] = 0;
  if (ids) {
    body["prompt"] = text.tokens;
  } else {
    std::string letters;
    for (const std::int32_t id : text.tokens)
      if (!tokenizer_.is_special(id)) letters += tokenizer_.token_bytes(id);
    body["prompt"] = letters;
  }
  const std::string sent = body.dump(-1, ' ', false, json::error_handler_t::replace);
  const HttpAsk call{
      .method = "POST", .url = settings_.url + "/v1/completions", .headers = {"Content-Type: application/json"}, .body = sent, .most_bytes = kMostAnswerBytes};
  FarAnswer result;
  HttpAnswer answer;
  try {
    answer = transfer_->ask(call);
    if (answer.status == 408 || answer.status == 429 || answer.status >= 500) Transfer::fail_with(call, answer);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::io) throw;
    result.failure = e.what();
    return result;
  }
  if (answer.status != 200) Transfer::fail_with(call, answer);
  try {
    result.answer = read_far_answer(answer.body, text, tokenizer_, ids, own);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::corrupt_file) throw;
    result.failure = e.what();
    result.for_good = true;
  }
  return result;
}

std::vector<FarAnswer> FarTeacher::ask(const std::vector<TeacherText>& texts) const {
  std::vector<FarAnswer> answers(texts.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr fault;
  const auto work = [&] {
    for (std::size_t i = next++; i < texts.size(); i = next++) {
      try {
        stop_.throw_if_stopped();
        answers[i] = ask_one(texts[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!fault) fault = std::current_exception();
        next = texts.size();
      }
    }
  };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < std::min<std::size_t>(texts.size(), static_cast<std::size_t>(settings_.at_once)); ++i) others.emplace_back(work);
  work();
  others.clear();
  if (fault) with_context(fmt::format("asking teacher '{}'", settings_.name), [&] { std::rethrow_exception(fault); });
  return answers;
}

}  // namespace lockstep
