// Ranks dealt to processes in order, as evenly as possible; a process's ranks are threads. Every process makes one of the same layout. What leaves a
// process is copied; nothing is added here. Where each has one rank, memory of devices may go by a wire of its own. One caller at a time.
//   ProcessRanks ranks(layout, mail); ranks.run([&](int local) { ranks.place(local).data->barrier(); });
#pragma once
#include "parallel/device_wire.h"
#include "parallel/mail.h"
#include "parallel/ranks.h"

namespace lockstep {

class ProcessRanks final : public Ranks {
 public:
  // `mail` and `device` outlive it; null: all goes by `mail`. Error invalid_argument: fewer ranks than processes, or with `device` more.
  ProcessRanks(const RankLayout& layout, ProcessMail& mail, DeviceWire* device = nullptr);
  ~ProcessRanks() override;

  const RankLayout& layout() const override { return layout_; }
  int local() const override { return static_cast<int>(ends_.size()); }
  RankPlace place(int local) const override;
  void run(const std::function<void(int)>& work) override;
  bool moves_meanwhile() const override { return !device_; }  // a device's exchanges are made whole in finish()
  double worked(int local) const override { return worked_[static_cast<std::size_t>(local)]; }
  int process() const override { return mail_.process(); }
  std::string host() const override { return mail_.host(); }

 private:
  struct Ends {
    std::unique_ptr<Communicator> world, tensor, model, data, stages, before, after, context;
  };
  RankLayout layout_;
  // All processes together, before a run's work: also after a run that failed.
  void join_devices();
  ProcessMail& mail_;
  DeviceWire* const device_;  // null where one process has all ranks
  int first_;
  std::vector<Ends> ends_;
  std::vector<double> worked_;  // by local rank
};

}  // namespace lockstep
