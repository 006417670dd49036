// Error measures for tests that compare within a tolerance. Tests only.
//   EXPECT_LE(relative_error(got, want), 1e-5);
//   LargestError error; for (std::size_t i = 0; i < got.size(); ++i) error.add(got[i], want(i)); EXPECT_LT(error.absolute(), 1e-6);
// A NaN on either side, differing infinities, different counts and empty lists give NaN, on which EXPECT_LE, EXPECT_LT and EXPECT_GT fail.
#pragma once
#include <cmath>
#include <cstddef>
#include <limits>

namespace lockstep {

// The larger of two errors; a NaN is the largest and stays. (std::max(worst, NaN) is worst: a NaN would be forgotten.)
inline double worse_of(double worst, double error) { return std::isnan(worst) || worst >= error ? worst : error; }

class LargestError {
 public:
  // True when this is the worst so far.
  bool add(double got, double want) {
    const double before = worst_;
    worst_ = worse_of(worst_, std::fabs(got - want));
    scale_ = worse_of(scale_, std::fabs(want));
    return count_++ == 0 || (!std::isnan(before) && !(worst_ <= before));
  }
  // max |got - want|
  double absolute() const { return count_ == 0 ? std::numeric_limits<double>::quiet_NaN() : worst_; }
  // max |got - want| / max |want|; 0 where all is 0
  double relative() const { return count_ != 0 && worst_ == 0 && scale_ == 0 ? 0 : absolute() / scale_; }
  double scale() const { return scale_; }  // max |want|

 private:
  double worst_ = 0, scale_ = 0;
  std::size_t count_ = 0;
};

// Of two lists of numbers.
template <class Got, class Want>
LargestError largest_error(const Got& got, const Want& want) {
  LargestError error;
  if (got.size() != want.size()) error.add(std::numeric_limits<double>::quiet_NaN(), 0);
  else
    for (std::size_t i = 0; i < want.size(); ++i) error.add(static_cast<double>(got[i]), static_cast<double>(want[i]));
  return error;
}
template <class Got, class Want>
double relative_error(const Got& got, const Want& want) {
  return largest_error(got, want).relative();
}
template <class Got, class Want>
double absolute_error(const Got& got, const Want& want) {
  return largest_error(got, want).absolute();
}

}  // namespace lockstep
