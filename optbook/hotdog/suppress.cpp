// Greedy suppression of overlapping boxes; suppress.py builds and calls it.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace py = pybind11;

// Boxes are left, top, right, bottom.
template <typename T>
T intersection_over_union(const T* one, const T* other) {
  const T width = std::min(one[2], other[2]) - std::max(one[0], other[0]);
  const T height = std::min(one[3], other[3]) - std::max(one[1], other[1]);
  const T shared = std::max(width, T(0)) * std::max(height, T(0));
  const T area = (one[2] - one[0]) * (one[3] - one[1]);
  const T other_area = (other[2] - other[0]) * (other[3] - other[1]);
  return shared / (area + other_area - shared);
}

template <typename T>
using Array = py::array_t<T, py::array::c_style>;

// Which of the boxes (n, 4) with these scores (n,) to keep: the hottest first.
template <typename T>
std::vector<std::int64_t> suppress(const Array<T>& corners, const Array<T>& scores, double overlap) {
  const T* box = corners.data();
  const T* score = scores.data();
  const T most = static_cast<T>(overlap);
  std::vector<std::int64_t> waiting(scores.size());
  std::iota(waiting.begin(), waiting.end(), 0);
  std::stable_sort(waiting.begin(), waiting.end(), [score](auto a, auto b) { return score[a] > score[b]; });
  std::vector<std::int64_t> kept;
  while (!waiting.empty()) {
    const std::int64_t best = waiting.front();
    kept.push_back(best);
    waiting.erase(waiting.begin());
    // `not at most`: boxes without any area give what is not a number, and go too.
    const auto drop = [=](auto i) { return !(intersection_over_union(box + 4 * best, box + 4 * i) <= most); };
    waiting.erase(std::remove_if(waiting.begin(), waiting.end(), drop), waiting.end());
  }
  return kept;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("suppress", &suppress<float>, py::arg().noconvert(), py::arg().noconvert(), py::arg());
  module.def("suppress", &suppress<double>, py::arg().noconvert(), py::arg().noconvert(), py::arg());
}
