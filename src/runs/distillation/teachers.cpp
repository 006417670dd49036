#include "runs/distillation/teachers.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <set>

#include "base/error.h"
#include "model/model.h"
#include "serving/on_executor.h"
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
    if (teacher.is_far() && !(teacher.folder.empty() && teacher.adapter.empty() && teacher.checkpoint.empty()))
      fail(ErrorCode::invalid_argument, "teacher '{}' has a url and a folder, an adapter or a checkpoint, allowed is one kind", teacher.name);
    if (!teacher.adapter.empty() && !teacher.checkpoint.empty())
      fail(ErrorCode::invalid_argument, "teacher '{}' has an adapter and a checkpoint, allowed is one of them", teacher.name);
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

Teachers::Teachers(std::vector<TeacherSettings> settings, const RuntimeSettings& runtime, const Tokenizer& tokenizer, std::int64_t vocabulary, StopToken stop,
                   std::int64_t most_bytes)
    : settings_(std::move(settings)), runtime_(runtime), tokenizer_(tokenizer), vocabulary_(vocabulary), stop_(std::move(stop)), most_bytes_(most_bytes) {
  runtime_.ranks.clear();
  for (const TeacherSettings& teacher : settings_) {
    const std::string path = teacher.folder.empty() ? runtime.model : teacher.folder;
    auto& of = checkpoints_.emplace_back();
    if (!teacher.checkpoint.empty()) of = teacher_checkpoint(teacher.checkpoint);
    const std::filesystem::path whole = of && of->rank == 0 ? of->folder : std::filesystem::path();
    const auto same = [&](const Folder& folder) { return folder.path == path && folder.checkpoint == whole; };
    const auto place = static_cast<std::size_t>(std::find_if(folders_.begin(), folders_.end(), same) - folders_.begin());
    if (place == folders_.size() && !teacher.is_far())
      folders_.push_back({.path = path, .checkpoint = whole, .opened = {}, .weights = nullptr, .executor = nullptr, .service = nullptr, .adapters = {}});
    folder_of_.push_back(place);
  }
  for (std::size_t place = 0; place < folders_.size(); ++place) in_memory(place);
}

Teachers::~Teachers() {
  for (const Folder& folder : folders_)
    if (folder.service) folder.service->stop();
}

Teachers::Folder& Teachers::in_memory(std::size_t place) {
  Folder& folder = folders_[place];
  folder.asked = ++turn_;
  if (!folder.service) load(folder, place);
  return folder;
}

void Teachers::load(Folder& folder, std::size_t place) {
  RuntimeSettings own = runtime_;
  own.model = folder.path;
  if (folder.bytes > 0) make_room(folder);  // it was here before: the memory is free before the folder is opened
  OpenedModel& opened = folder.opened;
  for (std::size_t t = 0; t < settings_.size(); ++t) {
    if (settings_[t].is_far() || folder_of_[t] != place) continue;
    with_context(fmt::format("opening teacher '{}'", settings_[t].name), [&] {
      if (!opened.model) {
        opened = open_model(own);
        if (!folder.checkpoint.empty()) {
          opened.reader = nullptr;
          opened.initial = [of = *checkpoints_[t], shapes = opened.model] { return whole_images(of, *shapes); };
        }
        folder.bytes = opened.own_weight_bytes();
        if (most_bytes_ > 0 && folder.bytes > most_bytes_)
          fail(ErrorCode::resource_exhausted, "the weights of '{}' take {} megabytes, and teacher_megabytes is {}; allowed is at least what one teacher takes",
               folder.path, (folder.bytes + (1 << 20) - 1) >> 20, most_bytes_ >> 20);
        make_room(folder);
      }
      check_same_tokens(settings_[t], opened, tokenizer_, vocabulary_);
      if (!folder.service) {
        ServingModel served = serving_model(opened);
        folder.weights = served.weights;
        folder.executor = served.executor = std::make_shared<Executor>();
        folder.service = std::make_shared<GenerationService>(std::move(served), ServingOptions{});
      }
      // An adapter's weights are on the device of its base, whose runtime the service's model has.
      const std::optional<TeacherCheckpoint>& of = checkpoints_[t];
      folder.adapters.emplace_back(t, !settings_[t].adapter.empty() ? open_adapter(opened, settings_[t].adapter)
                                      : of && of->rank > 0          ? checkpoint_adapter(*of, opened)
                                                                    : nullptr);
    });
  }
  ++loads_;
}

void Teachers::make_room(const Folder& folder) {
  if (most_bytes_ == 0) return;
  for (;;) {
    std::int64_t held = 0;
    Folder* oldest = nullptr;
    for (Folder& other : folders_) {
      if (!other.service) continue;
      held += other.bytes;
      if (!oldest || other.asked < oldest->asked) oldest = &other;
    }
    if (held + folder.bytes <= most_bytes_) return;
    oldest->adapters.clear();
    oldest->service->stop();
    oldest->service.reset();
    oldest->weights.reset();
    oldest->executor.reset();
    oldest->opened = {};
  }
}

std::vector<std::size_t> Teachers::order() const {
  std::vector<std::size_t> places;
  for (const bool here : {true, false})
    for (std::size_t t = 0; t < settings_.size(); ++t)
      if ((settings_[t].is_far() || folders_[folder_of_[t]].service) == here) places.push_back(t);
  return places;
}

Request Teachers::request(const std::shared_ptr<const AdapterWeights>& adapter, const TeacherText& text, std::int64_t tokens) const {
  Request request;
  request.prompt = text.tokens;
  request.adapter = adapter;
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

// In the order of their first teachers.
std::vector<std::vector<std::size_t>> Teachers::together() const {
  std::vector<std::vector<std::size_t>> groups;
  for (const std::size_t t : order()) {
    const auto same_folder = [&](const std::vector<std::size_t>& group) {
      return !settings_[t].is_far() && !settings_[group[0]].is_far() && folder_of_[group[0]] == folder_of_[t];
    };
    const auto known = std::find_if(groups.begin(), groups.end(), same_folder);
    (known == groups.end() ? groups.emplace_back() : *known).push_back(t);
  }
  return groups;
}

Teachers::Folder& Teachers::asked_folder(const std::vector<TeacherQuestion>& questions) {
  const std::size_t first = questions.front().teacher, place = folder_of_[first];
  for (const TeacherQuestion& question : questions)
    if (folder_of_[question.teacher] != place)
      fail(ErrorCode::internal, "teachers '{}' and '{}' are of two folders, and were asked at once", settings_[first].name, settings_[question.teacher].name);
  return in_memory(place);
}

const std::shared_ptr<const AdapterWeights>& Teachers::adapter_of(const Folder& folder, std::size_t teacher) const {
  return std::find_if(folder.adapters.begin(), folder.adapters.end(), [&](const auto& adapter) { return adapter.first == teacher; })->second;
}

std::string Teachers::names_of(const std::vector<TeacherQuestion>& questions) const {
  std::set<std::size_t> asked;
  for (const TeacherQuestion& question : questions) asked.insert(question.teacher);
  std::vector<std::string> names;
  for (const std::size_t t : asked) names.push_back(fmt::format("'{}'", settings_[t].name));
  return fmt::format("teacher{} {}", names.size() > 1 ? "s" : "", fmt::join(names, ", "));
}

TeacherStates Teachers::states(const std::vector<TeacherQuestion>& questions) {
  TeacherStates told;
  if (questions.empty()) return told;
  const Folder& folder = asked_folder(questions);
  Runtime& runtime = *folder.opened.runtime;
  std::vector<std::size_t> places(questions.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::stable_sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) { return questions[a].teacher < questions[b].teacher; });
  std::vector<TaughtText> texts;
  for (const std::size_t place : places) {
    const TeacherQuestion& question = questions[place];
    const AdapterWeights* adapter = adapter_of(folder, question.teacher).get();
    if (adapter && adapter->layout->place(runtime.model->facts().head).a >= 0)
      fail(ErrorCode::unsupported,
           "the adapter of teacher '{}' is of the head too (lm_head), which a divergence over the whole vocabulary has no form for; "
           "allowed are adapters of other layers, and over top or sampled",
           settings_[question.teacher].name);
    texts.push_back({.tokens = {question.text.tokens.begin(), question.text.tokens.end() - 1}, .adapter = adapter});
  }
  told.head = std::make_shared<const TeacherHead>(teacher_head(folder.opened.runtime, folder.weights));
  told.states.resize(questions.size());
  with_context(fmt::format("asking {}", names_of(questions)), [&] {
    std::int64_t forwards = 0;
    std::vector<std::vector<float>> states = run_on(*folder.executor, WorkClass::rollouts, [&](const OnExecutor&) {
                                               return teacher_states(runtime, *folder.weights, texts, [&] {
                                                 ++forwards;
                                                 stop_.throw_if_stopped();
                                               });
                                             }).get();
    forwards_ += forwards;
    for (std::size_t i = 0; i < places.size(); ++i) told.states[places[i]] = std::move(states[i]);
  });
  return told;
}

std::vector<TeacherAnswer> Teachers::ask(const std::vector<TeacherQuestion>& questions, std::int64_t tokens) {
  if (questions.empty()) return {};
  const Folder& folder = asked_folder(questions);
  GenerationService& service = *folder.service;
  const std::int64_t before = service.counters().forwards;
  const auto asked = std::make_shared<Questions>();
  asked->answers.resize(questions.size());
  for (std::size_t begin = 0; begin < questions.size(); begin += kMostTexts) {
    const std::size_t end = std::min(questions.size(), begin + kMostTexts);
    std::vector<Request> requests;
    for (std::size_t i = begin; i < end; ++i) requests.push_back(request(adapter_of(folder, questions[i].teacher), questions[i].text, tokens));
    asked->open = end - begin;
    with_context(fmt::format("asking {}", names_of(questions)), [&] {
      service.generate_all(std::move(requests), {}, [asked, begin](const OnExecutor&, std::size_t i, Generation&& generation) {
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
  forwards_ += service.counters().forwards - before;
  std::vector<TeacherAnswer> answers;
  for (std::size_t i = 0; i < questions.size(); ++i) answers.push_back(answer_of(questions[i], asked->answers[i], tokens));
  return answers;
}

TeacherAnswer Teachers::answer_of(const TeacherQuestion& question, const Generation& g, std::int64_t tokens) const {
  const std::string& name = settings_[question.teacher].name;
  if (g.finish == FinishReason::error) fail(ErrorCode::numeric, "teacher '{}': {}", name, g.error);
  if (g.finish == FinishReason::cancelled) fail(ErrorCode::cancelled, "the service of teacher '{}' stopped", name);
  const TeacherText& text = question.text;
  TeacherAnswer answer;
  answer.per_row = tokens == kSampled ? 1 : tokens == kVocabulary ? vocabulary_ : tokens;
  for (std::size_t row = text.first - 1; row + 1 < text.tokens.size(); ++row) {
    if (tokens == kSampled) {
      answer.tokens.push_back(text.tokens[row + 1]);
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
  return answer;
}

}  // namespace lockstep
