#include "parallel/ranks.h"

#include <unistd.h>

namespace lockstep {

std::string Ranks::host() const {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

CommunicatorCounters traffic_of(Ranks& ranks) {
  CommunicatorCounters sum;
  const auto add = [](CommunicatorCounters& to, const CommunicatorCounters& from) { to.calls += from.calls, to.bytes += from.bytes; };
  const auto own = [&](int local) {
    const RankPlace place = ranks.place(local);
    CommunicatorCounters counters;
    for (const Communicator* group : {place.world, place.tensor, place.model, place.data, place.stages, place.before, place.after, place.context})
      if (group) add(counters, group->counters());
    return counters;
  };
  for (const CommunicatorCounters& rank : ranks.gather<CommunicatorCounters>(own)) add(sum, rank);
  return sum;
}

}  // namespace lockstep
