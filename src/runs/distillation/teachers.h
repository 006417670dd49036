// Teachers of a distillation in this process: models with the student's tokenizer, each for some domains. For texts that the student wrote they
// return their likeliest tokens and log-probabilities at each position.
//   Teachers teachers(settings, runtime, tokenizer, vocabulary, stop);
//   for (const TeacherAnswer& a : teachers.ask(questions, 20)) use(a.tokens, a.logprobs);
// Teachers with the same folder are one model, and what is asked of them at once shares its forwards, whatever their adapters. When the folders' weights
// have a memory limit, folders are loaded in turn. One thread.
#pragma once
#include <memory>
#include <optional>
#include <utility>

#include "base/stop_token.h"
#include "runs/distillation/teacher_checkpoint.h"
#include "serving/loading.h"
#include "serving/serving.h"
#include "train/teacher_head.h"

namespace lockstep {

struct TeacherSettings {
  std::string name;
  std::string folder;           // of the model, or of the adapter's base; empty: the student's own base
  std::string adapter;          // a PEFT folder over it; empty: none
  std::string checkpoint = {};  // a run or a training checkpoint: an adapter over `folder`, or all weights in its place (teacher_checkpoint.h); empty: none
  std::vector<std::string> domains;  // for which it is used; empty: all
  double weight = 1;                 // among the teachers of one prompt
  // A teacher on another server (jobs/far_teacher.h) has none of these three.
  std::string url;                // of /v1/completions without that path; empty: none
  std::string model;              // its name there
  std::string key;                // its API key; never written to a file or message
  std::string send = "text";      // or "ids", to a teacher of the student's tokenizer
  std::string logprobs = "echo";  // or "prompt_logprobs", vLLM's own field, with ids
  std::string failed = "drop";    // a completion without its answer is dropped, or the request is repeated until it answers ("wait")
  std::int64_t at_once = 8, tries = 4;
  double timeout_seconds = 120;  // without a byte received
  bool is_far() const { return !url.empty(); }
};

// Errors invalid_argument, before a model is read: no teacher, a name twice, a weight that is not above 0, weights from two places, a domain of prompts
// without a teacher, a teacher for domains of which there are no prompts.
void check_teachers(const std::vector<TeacherSettings>& teachers, const std::vector<std::string>& domains);
// The places of a domain's teachers.
std::vector<std::size_t> teachers_of(const std::vector<TeacherSettings>& teachers, const std::string& domain);

// A text; the teacher scores its tokens from `first` (1 or more) on.
struct TeacherText {
  std::vector<std::int32_t> tokens;
  std::size_t first = 1;
};
struct TeacherQuestion {
  std::size_t teacher = 0;  // who is asked about it
  TeacherText text;
};
// `per_row` tokens for each position and their log-probabilities at temperature 1.
struct TeacherAnswer {
  std::int64_t per_row = 1;
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  // Of sampled tokens that were judged together, for the teacher cuts the text elsewhere: equal numbers side by side, each token with the sum of the
  // run; -1: judged by nobody. Empty: each token was judged alone.
  std::vector<std::int32_t> group = {};
};

// What the loss divergence is made of: the teacher's head, and of each text the hidden states of all its tokens but the last, [tokens, inputs of the head].
struct TeacherStates {
  std::shared_ptr<const TeacherHead> head;
  std::vector<std::vector<float>> states;
};

class Teachers {
 public:
  // Of those that are not far. `runtime`: the student's, whose profile, device and threads they have, and whose folder where they name none. The weights of
  // their folders take at most `most_bytes` at once (0: no limit): each is loaded here once, the one that was not asked for longest leaves where the next has
  // no room, and comes again when it is asked. No answer's bits depend on that. Errors: those of open_model and open_adapter; invalid_argument for a teacher
  // with another vocabulary or tokenizer, naming both; resource_exhausted where one folder alone takes more.
  Teachers(std::vector<TeacherSettings> settings, const RuntimeSettings& runtime, const Tokenizer& tokenizer, std::int64_t vocabulary, StopToken stop,
           std::int64_t most_bytes = 0);
  ~Teachers();
  Teachers(const Teachers&) = delete;
  Teachers& operator=(const Teachers&) = delete;

  const std::vector<TeacherSettings>& settings() const { return settings_; }
  // An order of asking with the fewest loads: teachers in memory come first.
  std::vector<std::size_t> order() const;
  // The same of those that may be asked at once: of one folder, or one on another server.
  std::vector<std::vector<std::size_t>> together() const;
  std::int64_t loads() const { return loads_; }        // of folders, so far
  std::int64_t forwards() const { return forwards_; }  // that answers took, so far
  // Of teachers of one folder: of each text's own tokens (kSampled), of the whole vocabulary (kVocabulary), or of the teacher's likeliest tokens, 1 to
  // SamplingParameters::kMaxTopLogprobs. No answer's bits depend on what else is asked. Errors: cancelled; numeric, with the teacher's name.
  static constexpr std::int64_t kSampled = -1, kVocabulary = 0;
  std::vector<TeacherAnswer> ask(const std::vector<TeacherQuestion>& questions, std::int64_t tokens);
  // The weights stay in memory as long as the answer's head is held, which is that of all teachers of a folder. Errors: cancelled; numeric, with their names;
  // unsupported for an adapter of the head, whose logits are no product with it alone.
  TeacherStates states(const std::vector<TeacherQuestion>& questions);

 private:
  // A folder and the adapters over it, by teacher; `service` is null while it is not in memory.
  struct Folder {
    std::string path;
    std::filesystem::path checkpoint = {};  // whose weights stand in the place of the folder's own; empty: none
    std::int64_t bytes = 0;                 // of its weights
    OpenedModel opened;                     // outlives what stands on its runtime
    std::shared_ptr<const WeightSet> weights;
    std::shared_ptr<Executor> executor;  // of the service
    std::shared_ptr<GenerationService> service;
    std::vector<std::pair<std::size_t, std::shared_ptr<const AdapterWeights>>> adapters;
    std::int64_t asked = 0;  // when it was last asked, as a count of calls
  };
  Folder& in_memory(std::size_t place);
  Folder& asked_folder(const std::vector<TeacherQuestion>& questions);
  const std::shared_ptr<const AdapterWeights>& adapter_of(const Folder& folder, std::size_t teacher) const;
  std::string names_of(const std::vector<TeacherQuestion>& questions) const;
  TeacherAnswer answer_of(const TeacherQuestion& question, const Generation& generation, std::int64_t tokens) const;
  void load(Folder& folder, std::size_t place);
  void make_room(const Folder& folder);
  Request request(const std::shared_ptr<const AdapterWeights>& adapter, const TeacherText& text, std::int64_t tokens) const;

  std::vector<TeacherSettings> settings_;
  RuntimeSettings runtime_;
  const Tokenizer& tokenizer_;
  std::int64_t vocabulary_;
  StopToken stop_;
  std::int64_t most_bytes_, loads_ = 0, forwards_ = 0, turn_ = 0;
  std::vector<Folder> folders_;
  std::vector<std::size_t> folder_of_;                         // by teacher, index into folders_; unused for one on another server
  std::vector<std::optional<TeacherCheckpoint>> checkpoints_;  // by teacher
};

}  // namespace lockstep
