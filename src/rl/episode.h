// One attempt at a problem, turn by turn: an observation for the policy, its answer, a reward.
//   const auto episode = environment.begin(problem);
//   const EpisodeStep s = episode->step("3"); if (!s.done) show(s.observation);
// An episode is a function of its problem and of the answers: begun again with the same answers it has the same observations and rewards, on any
// machine, so it is never saved. Knows no model and no tokens. One thread; episodes are independent of each other.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct EpisodeStep {
  std::string observation;  // what the policy is shown next; empty after the last turn
  double reward = 0;        // for this answer; after the last turn the final reward
  bool done = false;
};

// An episode's verdict on an answer that is still being sampled: it goes on; it is cut off; or it is rolled back to its first `keep` bytes and a text
// is inserted, on which no policy is trained.
struct AnswerCheck {
  enum class Kind { go_on, stop, roll_back };
  Kind kind = Kind::go_on;
  std::size_t keep = 0;  // of roll_back: tokens that lie entirely within this many bytes of the answer are kept
  std::string put_in = {};
};

class Episode {
 public:
  virtual ~Episode() = default;
  // The text that every context window begins with, and the first observation after it.
  virtual std::string task() const = 0;
  virtual std::string first() const { return {}; }
  // Whether its texts are a chat template's (rl/conversation_environment.h): task() is a whole prompt, which no special token is put around.
  virtual bool in_template() const { return false; }
  // `answer` is decoded text without the end token; any bytes are allowed, and it never throws for them. Error internal when the episode is done.
  virtual EpisodeStep step(std::string_view answer) = 0;

  // Texts at which an answer is checked while it is sampled: whenever one of them is complete in the answer, check() gets the answer so far. Empty:
  // answers are not checked. Called on the sampling thread while nothing else calls the episode; check() must neither block nor throw.
  virtual std::vector<std::string> checked_at() const { return {}; }
  virtual AnswerCheck check(std::string_view) { return {}; }

  // When a window is full, the policy is shown this instead of the last observation and writes a summary, which no environment reads. The next window
  // begins with the task, the summary and that observation.
  virtual std::string summary_prompt() const { return {}; }
  virtual void next_window() {}

  // What a perfect policy would answer here from what its window shows, and what it would write as a summary of all but the last observation.
  // Deterministic; for supervised fine-tuning.
  virtual std::string reference() const = 0;
  virtual std::string reference_summary() const { return {}; }
};

}  // namespace lockstep
