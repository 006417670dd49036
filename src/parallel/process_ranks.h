// Ranks dealt to processes in order, as evenly as possible; a process's ranks are threads. Every process makes one of the same layout. What leaves a
// process is copied; nothing is added here. One caller at a time.
//   ProcessRanks ranks(layout, mail); ranks.run([&](int local) { ranks.place(local).data->barrier(); });
#pragma once
#include "parallel/mail.h"
#include "parallel/ranks.h"

namespace lockstep {

class ProcessRanks final : public Ranks {
 public:
  // `mail` outlives it. Error invalid_argument: fewer ranks than processes.
  ProcessRanks(const RankLayout& layout, ProcessMail& mail);
  ~ProcessRanks() override;

  const RankLayout& layout() const override { return layout_; }
  int local() const override { return static_cast<int>(ends_.size()); }
  RankPlace place(int local) const override;
  void run(const std::function<void(int)>& work) override;
  bool moves_meanwhile() const override { return true; }
  double worked(int local) const override { return worked_[static_cast<std::size_t>(local)]; }
  int process() const override { return mail_.process(); }
  std::string host() const override { return mail_.host(); }

 private:
  struct Ends {
    std::unique_ptr<Communicator> world, tensor, model, data, stages, before, after, context;
  };
  RankLayout layout_;
  ProcessMail& mail_;
  int first_;
  std::vector<Ends> ends_;
  std::vector<double> worked_;  // by local rank
};

}  // namespace lockstep
