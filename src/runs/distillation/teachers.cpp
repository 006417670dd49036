#include "runs/distillation/teachers.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>

#include "base/error.h"
#include "model/model.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostTexts = 256;  // of a teacher's service at once

bool teaches(const TeacherSettings& teacher, const std::string& domain) {
  return teacher.domains.empty() || std::find(teacher.domains.begin(), teacher.domains.end(), domain) != teacher.domains.end();
}

void check_same_tokens(const TeacherSettings& teacher, const OpenedModel& opened, const Tokenizer& tokenizer, std::int64_t vocabulary) {
  const std::int64_t own = opened.model->facts().vocabulary;
  if (own != vocabulary)
    fail(ErrorCode::invalid_argument, "teacher '{}' has a vocabulary of {}, the student of {}; allowed are teachers of the same tokenizer", teacher.name, own,
         vocabulary);
  if (!opened.tokenizer) return;
  for (std::int32_t id = 0; id < vocabulary; ++id)
    if (opened.tokenizer->token_text(id) != tokenizer.token_text(id))
      fail(ErrorCode::invalid_argument, "token {} is '{}' to teacher '{}' and '{}' to the student; allowed are teachers of the same tokenizer", id,
           opened.tokenizer->token_text(id), teacher.name, tokenizer.token_text(id));
}

// Shared with the callbacks, which may outlive an interrupted call.
struct Questions {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Generation> answers;
  std::size_t open = 0;
};
}  // namespace

std::vector<std::size_t> teachers_of(const std::vector<TeacherSettings>& teachers, const std::string& domain) {
  std::vector<std::size_t> places;
  for (std::size_t t = 0; t < teachers.size(); ++t)
    if (teaches(teachers[t], domain)) places.push_back(t);
  return places;
}

void check_teachers(const std::vector<TeacherSettings>& teachers, const std::vector<std::string>& domains) {
  if (teachers.empty()) fail(ErrorCode::invalid_argument, "there is no teacher, allowed is at least one");
  std::set<std::string> names;
  for (const TeacherSettings& teacher : teachers) {
    if (teacher.name.empty() || !names.insert(teacher.name).second)
      fail(ErrorCode::invalid_argument, "the name of a teacher is '{}', allowed are names that no other teacher has", teacher.name);
    if (!(teacher.weight > 0 && teacher.weight <= 1e6))
      fail(ErrorCode::invalid_argument, "the weight of teacher '{}' is {}, allowed is above 0 to 1e6", teacher.name, teacher.weight);
    if (teacher.is_far() && !(teacher.folder.empty() && teacher.adapter.empty()))
      fail(ErrorCode::invalid_argument, "teacher '{}' has a url and a folder or an adapter, allowed is one kind", teacher.name);
    if (teacher.is_far() && teacher.logprobs == "prompt_logprobs" && teacher.send != "ids")
      fail(ErrorCode::invalid_argument, "teacher '{}' answers prompt_logprobs to {}, allowed is send = \"ids\": they are by token id", teacher.name,
           teacher.send);
    for (const std::string& domain : teacher.domains)
      if (std::find(domains.begin(), domains.end(), domain) == domains.end())
        fail(ErrorCode::invalid_argument, "teacher '{}' is for the domain '{}', of which there are no prompts; they are of {}{}", teacher.name, domain,
             fmt::join(domains, ", "), did_you_mean(domain, domains));
  }
  for (const std::string& domain : domains)
    if (teachers_of(teachers, domain).empty())
      fail(ErrorCode::invalid_argument, "no teacher is for the domain '{}'; a teacher without domains is for all", domain);
}

Teachers::Teachers(std::vector<TeacherSettings> settings, const RuntimeSettings& runtime, const Tokenizer& tokenizer, std::int64_t vocabulary, StopToken stop)
    : settings_(std::move(settings)), vocabulary_(vocabulary), stop_(std::move(stop)) {
  for (const TeacherSettings& teacher : settings_) {
    if (teacher.is_far()) {
      model_of_.push_back(loaded_.size());  // never looked at
      adapters_.push_back(nullptr);
      continue;
    }
    const std::string folder = teacher.folder.empty() ? runtime.model : teacher.folder;
    const auto place =
        static_cast<std::size_t>(std::find_if(loaded_.begin(), loaded_.end(), [&](const Loaded& loaded) { return loaded.folder == folder; }) - loaded_.begin());
    RuntimeSettings own = runtime;
    own.model = folder;
    own.ranks.clear();
    with_context(fmt::format("opening teacher '{}'", teacher.name), [&] {
      const OpenedModel opened = open_model(own);
      check_same_tokens(teacher, opened, tokenizer, vocabulary_);
      // An adapter's weights are on the device of its base, whose runtime the service's model has.
      if (place == loaded_.size()) loaded_.push_back({folder, opened, std::make_shared<GenerationService>(serving_model(opened), ServingOptions{})});
      adapters_.push_back(teacher.adapter.empty() ? nullptr : open_adapter(loaded_[place].opened, teacher.adapter));
    });
    model_of_.push_back(place);
  }
}

Teachers::~Teachers() {
  for (const Loaded& loaded : loaded_) loaded.service->stop();
}

Request Teachers::request(std::size_t teacher, const TeacherText& text, std::int64_t tokens) const {
  Request request;
  request.prompt = text.tokens;
  request.adapter = adapters_[teacher];
  request.prompt_logprobs = true;
  request.sampling.max_tokens = 0;
  request.is_stream = false;
  if (tokens > 0) request.sampling.top_logprobs = static_cast<std::int32_t>(tokens);
  if (tokens != kVocabulary) return request;
  const auto size = static_cast<std::size_t>(vocabulary_);
  request.prompt_targets_per_row = static_cast<std::int32_t>(vocabulary_);
  request.prompt_targets.assign((text.tokens.size() - 1) * size, -1);
  for (std::size_t i = (text.first - 1) * size; i < request.prompt_targets.size(); ++i) request.prompt_targets[i] = static_cast<std::int32_t>(i % size);
  return request;
}

std::vector<TeacherAnswer> Teachers::ask(std::size_t teacher, const std::vector<TeacherText>& texts, std::int64_t tokens) {
  GenerationService& service = *loaded_[model_of_[teacher]].service;
  const auto asked = std::make_shared<Questions>();
  asked->answers.resize(texts.size());
  for (std::size_t begin = 0; begin < texts.size(); begin += kMostTexts) {
    const std::size_t end = std::min(texts.size(), begin + kMostTexts);
    std::vector<Request> requests;
    for (std::size_t i = begin; i < end; ++i) requests.push_back(request(teacher, texts[i], tokens));
    asked->open = end - begin;
    with_context(fmt::format("asking teacher '{}'", settings_[teacher].name), [&] {
      service.generate_all(std::move(requests), {}, [asked, begin](std::size_t i, Generation&& generation) {
        const std::lock_guard lock(asked->mutex);
        asked->answers[begin + i] = std::move(generation);
        --asked->open;
        asked->changed.notify_all();
      });
    });
    std::unique_lock lock(asked->mutex);
    while (asked->open > 0) {
      asked->changed.wait_for(lock, std::chrono::milliseconds(100));
      stop_.throw_if_stopped();
    }
  }
  std::vector<TeacherAnswer> answers;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Generation& g = asked->answers[i];
    if (g.finish == FinishReason::error) fail(ErrorCode::numeric, "teacher '{}': {}", settings_[teacher].name, g.error);
    if (g.finish == FinishReason::cancelled) fail(ErrorCode::cancelled, "the service of teacher '{}' stopped", settings_[teacher].name);
    TeacherAnswer& answer = answers.emplace_back();
    answer.per_row = tokens == kSampled ? 1 : tokens == kVocabulary ? vocabulary_ : tokens;
    for (std::size_t row = texts[i].first - 1; row + 1 < texts[i].tokens.size(); ++row) {
      if (tokens == kSampled) {
        answer.tokens.push_back(texts[i].tokens[row + 1]);
        answer.logprobs.push_back(g.prompt_logprobs[row]);
      } else if (tokens == kVocabulary) {
        const auto first = g.prompt_target_logprobs.begin() + static_cast<std::ptrdiff_t>(row) * vocabulary_;
        for (std::int32_t id = 0; id < vocabulary_; ++id) answer.tokens.push_back(id);
        answer.logprobs.insert(answer.logprobs.end(), first, first + vocabulary_);
      } else {
        for (const TokenLogprob& one : g.prompt_top_logprobs[row]) {
          answer.tokens.push_back(one.id);
          answer.logprobs.push_back(one.logprob);
        }
      }
    }
  }
  return answers;
}

}  // namespace lockstep
