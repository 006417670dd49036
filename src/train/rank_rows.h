// Which rows of each parameter have their optimizer state on this data-parallel rank (ZeRO), and gathering them; with RankShard::weights the rank keeps
// these rows alone of the compute copy and of accumulators, too. A single rank has all rows. With rows=dealt (train/sequence_place.h) all ranks have
// copies of everything but the experts, and deal rows among all. Used by the rank's thread.
//   RankRows rows(backend, manifest, place); rows.write(id, buffer.view(), image);
#pragma once
#include "model/parameter_share.h"
#include "model/tape.h"
#include "model/weights.h"
#include "parallel/collectives.h"
#include "parallel/rank_place.h"

namespace lockstep {

class RankRows {
 public:
  // `profile`: of the compute copies, so that each is quantised from the rows of one rank; null: they are not.
  // `whole_items`: each matrix is one rank's, as an optimizer of whole matrices needs it.
  RankRows(Backend& backend, const Manifest& manifest, const RankPlace& place = {}, const Profile* profile = nullptr, bool whole_items = false);

  const RankPlace& place() const { return place_; }  // among the ranks that sequences are dealt to
  const Manifest& manifest() const { return manifest_; }
  // For a GradientSet; null: every row is this rank's.
  const std::vector<ParameterShare>* shares() const { return place_.layout.data() > 1 ? &shares_ : nullptr; }
  // Whether this rank keeps its rows of the compute copy alone, and the whole is gathered when it is used; of one parameter (state that is not trained is
  // whole everywhere), and of any.
  bool keeps_rows(std::size_t i) const { return shards_weights() && deals(i); }
  bool shards_weights() const { return place_.layout.shards_weights(); }
  // For what this rank keeps of the compute copy; `profile` null: it is the master.
  Buffer allocate_copy(std::size_t i, const Profile* profile) const;
  // This rank's rows of such a buffer.
  View own_copy(std::size_t i, const View& copy) const { return keeps_rows(i) ? copy : own(i, copy); }
  // The matrices of a parameter of which this rank has all rows; with `whole_items`.
  std::int64_t own_items(std::size_t i) const;
  // Whether replicas share out the parameter's state; false: each has all of it.
  bool deals(std::size_t i) const { return place_.layout.data() > 1 && manifest_.parameters()[i].trained; }
  // This rank's rows: the first and how many (panels, or rows of a table).
  std::pair<std::int64_t, std::int64_t> own_rows(std::size_t i) const {
    const ParameterShare& share = shares_[i];
    return deals(i) ? std::pair(share.begin(), share.count()) : std::pair(std::int64_t{0}, share.total());
  }
  // Rows and columns of a buffer for this rank's rows.
  std::pair<std::int64_t, std::int64_t> shape(std::size_t i) const;
  // This rank's rows of a view of the whole parameter.
  View own(std::size_t i, const View& whole) const { return deals(i) ? shares_[i].rows(whole) : whole; }
  // The same for a view that may already be only these rows.
  View own_of(std::size_t i, const View& whole_or_own) const;
  // This rank's rows of the whole parameter's image, into a view of them.
  void write(std::size_t i, const View& own, const std::vector<float>& image) const;
  // All-gathers `whole`, in which every rank has written its own rows. All ranks call together, here and below.
  void gather(std::size_t i, const View& whole) const;
  // The same where each rank has its own rows elsewhere, in two halves, between which this rank may compute (Communicator::start).
  void start_gather(std::size_t i, const View& own, const View& whole) const;
  void finish_gather(std::size_t i) const;
  // The whole parameter's image, on the first of the ranks that have it; empty on other ranks, and where other model ranks own all of it.
  std::vector<float> image(std::size_t i, const View& own) const;
  // Reduce-scatter of accumulators: sums of all ranks, each row on the rank that owns it. Of all parameters, after the last backward, unless each was
  // joined before; and of one, whose rows a rank that keeps rows alone puts away.
  void join(GradientSet& gradients) const;
  void join(GradientSet& gradients, std::size_t i) const;
  // The latter in two halves.
  StartedReduceScatter start_join(GradientSet& gradients, std::size_t i) const;
  void finish_join(GradientSet& gradients, std::size_t i, const StartedReduceScatter& started) const;

 private:
  // The place of this rank among those that have copies of the parameter.
  const RankPlace& holders(std::size_t i) const { return manifest_.parameters()[i].split == ParameterSplit::experts ? of_experts_ : place_; }
  bool travels(std::size_t i) const { return deals(i) && holders(i).layout.data() > 1 && shares_[i].total() > 0; }
  std::vector<View> rows_by_rank(std::size_t i, const View& whole) const;

  Backend& backend_;
  const Manifest& manifest_;
  RankPlace place_, of_experts_;
  std::vector<ParameterShare> shares_;
};

}  // namespace lockstep
