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
  std::string observation;  // what the policy is shown next; of the last turn nothing
  double reward = 0;        // that the answer brought; of the last turn the reward at the end
  bool done = false;
};

// What an episode says of an answer on the way: it goes on, it is cut off there, or all but its first bytes is taken back and a text put in, which no policy
// said and none is trained on.
struct AnswerCheck {
  enum class Kind { go_on, stop, roll_back };
  Kind kind = Kind::go_on;
  std::size_t keep = 0;  // bytes of the answer, of roll_back: tokens that lie in them as a whole are kept
  std::string put_in = {};
};

class Episode {
 public:
  virtual ~Episode() = default;
  // What every context window begins with, and what is shown behind it at the start.
  virtual std::string task() const = 0;
  virtual std::string first() const { return {}; }
  // `answer` is decoded text without the end token; any bytes are allowed, and it never throws for them. Error internal when the episode is done.
  virtual EpisodeStep step(std::string_view answer) = 0;

  // Answers of this task are checked on the way: each time that one of these texts is whole in one, check() is asked with what it says so far. None: they
  // are not. Called by whatever thread samples, while nobody else calls the episode; it must neither block nor throw.
  virtual std::vector<std::string> checked_at() const { return {}; }
  virtual AnswerCheck check(std::string_view) { return {}; }

  // Where a window is full, the policy is shown this in place of the last observation, and writes a summary, which no environment reads. The next window
  // has the task, the summary and that observation.
  virtual std::string summary_prompt() const { return {}; }
  virtual void next_window() {}

  // What a perfect policy answers here, from what its window shows; what it would write as a summary, of all but the last observation. The same every time,
  // for supervised fine-tuning.
  virtual std::string reference() const = 0;
  virtual std::string reference_summary() const { return {}; }
};

}  // namespace lockstep
