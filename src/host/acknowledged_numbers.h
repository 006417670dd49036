// Stores the highest sequence number that each model's client got an answer for, before the answer is sent. A server that was killed and restarted thus
// knows which numbers were used, including those of operations that were lost, and does not wait for them. The file also says whether there were
// gradients that no step had taken: they are lost with the process, and the next step must fail instead of stepping without them. One small file
// a model, written in place: safe against a kill of the process; after a failure of the machine it may be older. One thread at a time for each model.
//   AcknowledgedNumbers numbers(state / "numbers"); numbers.note("s1_train_0", 7); numbers.last("s1_train_0");
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

class AcknowledgedNumbers {
 public:
  // Errors: io when the folder cannot be made.
  explicit AcknowledgedNumbers(std::filesystem::path folder);
  // `model`: a plain file name. Errors: io; then the number must not be acknowledged.
  void note(const std::string& model, std::int64_t number);
  // Called before the client gets the answer of the first gradient. Errors: io.
  void note_gradients(const std::string& model, bool open);
  bool has_gradients(const std::string& model) const;
  // 0: none.
  std::int64_t last(const std::string& model) const;
  void forget(const std::string& model);

 private:
  const std::filesystem::path folder_;
};

}  // namespace lockstep
