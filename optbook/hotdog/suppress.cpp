// Greedy suppression of overlapping boxes; see suppress.py for what calls it.
#include <torch/extension.h>

#include <algorithm>
#include <vector>

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
std::vector<int64_t> greedy(const T* corners, const int64_t* order, int64_t count, T overlap) {
  std::vector<bool> dropped(count, false);
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < count; ++i) {
    if (dropped[i]) continue;
    kept.push_back(order[i]);
    for (int64_t j = i + 1; j < count; ++j) {
      if (!(intersection_over_union(corners + 4 * order[i], corners + 4 * order[j]) <= overlap)) {
        dropped[j] = true;
      }
    }
  }
  return kept;
}

// corners (n, 4) and scores (n), float32 or float64, both contiguous and on the CPU.
std::vector<int64_t> suppress(const at::Tensor& corners, const at::Tensor& scores, double overlap) {
  const at::Tensor order = std::get<1>(scores.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true));
  std::vector<int64_t> kept;
  AT_DISPATCH_FLOATING_TYPES(corners.scalar_type(), "suppress", [&] {
    kept = greedy<scalar_t>(corners.data_ptr<scalar_t>(), order.data_ptr<int64_t>(), order.size(0),
                            static_cast<scalar_t>(overlap));
  });
  return kept;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("suppress", &suppress); }
