// The Python face of the engine: arrays come by DLPack, shapes were checked by halfgp.backends.cpu.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>
#include <tuple>

#include "conditionals.hpp"
#include "dispatch.hpp"
#include "engine.hpp"
#include "grouped_factor.hpp"
#include "nearest.hpp"
#include "sparse_factor.hpp"

namespace nb = nanobind;
using namespace halfgp;

namespace {

template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Row-major, column-major, or a part of such: a product takes vectors as they lie.
template <class T>
using Strided = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

template <class T>
Columns<T> columns_of(const Strided<T>& table) {
  return {table.data(), static_cast<int>(table.shape(1)), table.stride(0), table.stride(1)};
}

const Target& target_named(const std::string& name) {
  const Target* target = find_target(name);
  if (!target) throw nb::value_error(("this machine has no instruction set " + name).c_str());
  return *target;
}

unsigned long main_thread;  // Python's; signals are its business alone

// Runs `work` without the interpreter's lock; the main thread looks for signals (Ctrl-C) as it goes. Another thread must
// not ask for the lock midway: at the interpreter's exit it would never come back from that.
template <class Work>
auto run(int threads, Work work) {
  Execution execution{threads, nullptr};
  if (PyThread_get_thread_ident() == main_thread)
    execution.interrupted = [] {
      const nb::gil_scoped_acquire acquire;
      return PyErr_CheckSignals() != 0;
    };
  try {
    const nb::gil_scoped_release release;
    return work(execution);
  } catch (const Interrupted&) {
    throw nb::python_error();  // the signal's handler has set it
  }
}

// The vocabulary of programs, as Python enums and classes of the same names.
void bind_descriptions(nb::module_& m) {
  nb::enum_<Profile> profiles(m, "Profile");
  int number = 0;
  for (const char* name : kProfileNames) profiles.value(name, static_cast<Profile>(number++));
  nb::enum_<NodeKind>(m, "NodeKind")
      .value("leaf", NodeKind::leaf)
      .value("constant", NodeKind::constant)
      .value("add", NodeKind::add)
      .value("multiply", NodeKind::multiply);
  nb::enum_<Path>(m, "Path")
      .value("expansion", Path::expansion)
      .value("difference", Path::difference)
      .value("fixed_point", Path::fixed_point);
  nb::enum_<Stored>(m, "Stored")
      .value("none", Stored::none)
      .value("float16", Stored::float16)
      .value("bfloat16", Stored::bfloat16)
      .value("native", Stored::native);
  nb::class_<Node>(m, "Node")
      .def("__init__", [](Node* self, NodeKind kind, int a, int b) { new (self) Node{kind, a, b}; }, nb::arg("kind"),
           nb::arg("a"), nb::arg("b") = -1)
      .def_ro("kind", &Node::kind)
      .def_ro("a", &Node::a)
      .def_ro("b", &Node::b);
  nb::class_<LeafDescription>(m, "Leaf")
      .def("__init__",
           [](LeafDescription* self, Profile profile, int features, bool shared_scale, double shape, double least_exponent,
              Path near_path, bool by_products, std::vector<double> centre, double factor, double fixed_step) {
             new (self) LeafDescription{profile,   features, shared_scale, shape, least_exponent,
                                        near_path, by_products, {std::move(centre), factor, fixed_step}};
           },
           nb::kw_only(), nb::arg("profile"), nb::arg("features"), nb::arg("shared_scale"), nb::arg("shape"),
           nb::arg("least_exponent"), nb::arg("near_path"), nb::arg("by_products"), nb::arg("centre"), nb::arg("factor"),
           nb::arg("fixed_step"))
      .def_ro("profile", &LeafDescription::profile)
      .def_ro("features", &LeafDescription::features)
      .def_ro("shared_scale", &LeafDescription::shared_scale)
      .def_ro("shape", &LeafDescription::shape)
      .def_ro("least_exponent", &LeafDescription::least_exponent)
      .def_ro("near_path", &LeafDescription::near_path)
      .def_ro("by_products", &LeafDescription::by_products)
      .def_prop_ro("centre", [](const LeafDescription& self) { return self.packing.centre; })
      .def_prop_ro("factor", [](const LeafDescription& self) { return self.packing.factor; })
      .def_prop_ro("fixed_step", [](const LeafDescription& self) { return self.packing.fixed_step; });
  nb::class_<KernelProgram>(m, "Program")
      .def(nb::init<const std::vector<LeafDescription>&, std::vector<Node>, std::vector<double>, double, double>(),
           nb::arg("leaves"), nb::arg("nodes"), nb::arg("constants"), nb::arg("scale"), nb::arg("negligible"));
}

std::shared_ptr<Points> make_points(const KernelProgram& program, bool single, Vector<const std::uint8_t> near,
                                    const std::vector<Table<const double>>& features,
                                    std::optional<Vector<const std::int64_t>> order, std::int64_t runs) {
  std::vector<const double*> tables;
  for (const auto& table : features) tables.push_back(table.data());
  const Runs held{order ? order->data() : nullptr, runs};
  const nb::gil_scoped_release release;
  return std::make_shared<Points>(static_cast<std::int64_t>(near.shape(0)), near.data(), tables, program.leaves, program.packing, single,
                                  has_support(program.view()), held);
}

std::vector<double*> pointers(std::vector<std::optional<Table<double>>>& tables) {
  std::vector<double*> result;
  for (auto& table : tables) result.push_back(table ? table->data() : nullptr);
  return result;
}

template <class U>
void bind_scalar_type(nb::class_<KernelMatrix>& matrix) {
  matrix.def(
      "product",
      [](const KernelMatrix& self, Strided<const U> v, std::optional<Vector<const double>> diagonal, Strided<U> out, int threads) {
        run(threads, [&](const Execution& execution) {
          self.product(columns_of(v), diagonal ? diagonal->data() : nullptr, columns_of(out), execution);
        });
      },
      nb::arg("v").noconvert(), nb::arg("diagonal").none(), nb::arg("out").noconvert(), nb::arg("threads"));
  matrix.def(
      "product_within",
      [](const KernelMatrix& self, Strided<const U> v, Vector<const double> diagonal, Strided<U> out, int threads) {
        run(threads, [&](const Execution& execution) { self.product_within(columns_of(v), diagonal.data(), columns_of(out), execution); });
      },
      nb::arg("v").noconvert(), nb::arg("diagonal"), nb::arg("out").noconvert(), nb::arg("threads"));
  matrix.def(
      "block",
      [](const KernelMatrix& self, Table<U> out, int threads) {
        run(threads, [&](const Execution& execution) { self.block(out.data(), execution); });
      },
      nb::arg("out").noconvert(), nb::arg("threads"));
  matrix.def(
      "gradient",
      [](const KernelMatrix& self, Table<const U> u, Table<const U> v, std::vector<std::optional<Table<double>>> row_features,
         std::vector<std::optional<Table<double>>> column_features, int threads) {
        const std::vector<double*> rows = pointers(row_features), columns = pointers(column_features);
        const GradientSums sums = run(threads, [&](const Execution& execution) {
          return self.gradient(u.data(), v.data(), static_cast<int>(u.shape(1)), rows, columns, execution);
        });
        return std::make_tuple(sums.root, sums.constants, sums.shapes, sums.scales);
      },
      nb::arg("u").noconvert(), nb::arg("v").noconvert(), nb::arg("row_features"), nb::arg("column_features"), nb::arg("threads"));
}

using Sums = std::tuple<double, std::vector<double>, std::vector<double>, std::vector<std::vector<double>>>;

Sums compute_conditionals(const std::string& instruction_set, bool single, const KernelProgram& program,
                          const std::vector<Table<const double>>& features, Vector<const double> diagonal,
                          Table<const double> targets, Vector<const std::int64_t> rows, Table<const std::int64_t> members,
                          std::optional<Table<const double>> explained,
                          Table<double> residuals, Vector<double> deviations, std::optional<Table<double>> factor,
                          std::optional<Table<double>> by_diagonal, std::vector<std::optional<Table<double>>> by_features,
                          int threads) {
  Neighbourhoods of{{},          diagonal.data(), targets.data(), rows.data(), members.data(), static_cast<std::int64_t>(rows.shape(0)),
                    static_cast<int>(members.shape(1)), static_cast<int>(targets.shape(1))};
  for (const auto& table : features) of.features.push_back(table.data());
  if (explained) {
    of.explained = explained->data();
    of.landmarks = static_cast<int>(explained->shape(1));
    if (of.landmarks % kLandmarks || reinterpret_cast<std::uintptr_t>(of.explained) % kAlignment)
      throw nb::value_error("what landmarks explain must be aligned and padded");
  }
  const ConditionalResults results{residuals.data(), deviations.data(), factor ? factor->data() : nullptr,
                                   by_diagonal ? by_diagonal->data() : nullptr, pointers(by_features)};
  const Target& target = target_named(instruction_set);
  const GradientSums sums =
      run(threads, [&](const Execution& execution) { return conditionals(target, single, program, of, results, execution); });
  return {sums.root, sums.constants, sums.shapes, sums.scales};
}

void find_nearest(const std::string& instruction_set, Table<const double> points, std::optional<Vector<const std::int64_t>> positions,
                  Table<const double> queries, Vector<const std::int64_t> own, Table<std::int64_t> found, int threads) {
  const NearestSearch search{points.data(),
                             static_cast<std::int64_t>(points.shape(0)),
                             static_cast<int>(points.shape(1)),
                             positions ? positions->data() : nullptr,
                             queries.data(),
                             static_cast<std::int64_t>(queries.shape(0)),
                             own.data(),
                             static_cast<int>(found.shape(1))};
  const Target& target = target_named(instruction_set);
  run(threads, [&](const Execution& execution) { nearest(target, search, found.data(), execution); });
}

// Products and solves of a triangular factor, whatever it is made of.
template <class Factor>
void check_rows(const Factor& factor, const Table<double>& v) {
  if (static_cast<std::int64_t>(v.shape(0)) != factor.size()) throw nb::value_error("vectors must have the factor's rows");
}

template <class Factor>
void bind_factor(nb::class_<Factor>& factor) {
  factor
      .def("multiply",
           [](const Factor& self, Table<const double> v, Table<double> out, bool transposed, int threads) {
             if (v.shape(0) != out.shape(0) || v.shape(1) != out.shape(1)) throw nb::value_error("results have the shape of the vectors");
             check_rows(self, out);
             run(threads, [&](const Execution& execution) {
               const auto count = static_cast<int>(v.shape(1));
               if (transposed)
                 self.multiply_transposed(v.data(), count, out.data(), execution);
               else
                 self.multiply(v.data(), count, out.data(), execution);
             });
           },
           nb::arg("v"), nb::arg("out").noconvert(), nb::arg("transposed"), nb::arg("threads"))
      .def("solve",
           [](const Factor& self, Table<double> v, bool transposed) {
             check_rows(self, v);
             const nb::gil_scoped_release release;
             const auto count = static_cast<int>(v.shape(1));
             if (transposed)
               self.solve_transposed(v.data(), count);
             else
               self.solve(v.data(), count);
           },
           nb::arg("v").noconvert(), nb::arg("transposed"));
}

template <class Entry>
void bind_grouped_factor(nb::module_& m, const char* name) {
  using Factor = GroupedFactor<Entry>;
  nb::class_<Factor> factor(m, name);
  bind_factor(factor);
  factor
      .def("__init__",
           [](Factor* self, const std::string& instruction_set, const KernelProgram& program,
              const std::vector<Table<const double>>& features, Vector<const double> diagonal, Table<const double> explained,
              Vector<const std::int64_t> starts, Vector<const std::int64_t> member_starts, Vector<const std::int64_t> members,
              int threads) {
             GroupedRows of{{}, diagonal.data(), explained.data(), static_cast<std::int64_t>(diagonal.shape(0)),
                            static_cast<int>(explained.shape(1)), starts.data(), member_starts.data(), members.data(),
                            static_cast<std::int64_t>(starts.shape(0)) - 1};
             for (const auto& table : features) of.features.push_back(table.data());
             const Target& target = target_named(instruction_set);
             run(threads, [&](const Execution& execution) {
               new (self) Factor(target, program, of, execution);
               return 0;
             });
           },
           nb::arg("instruction_set"), nb::arg("program"), nb::arg("features"), nb::arg("diagonal"), nb::arg("explained"),
           nb::arg("starts"), nb::arg("member_starts"), nb::arg("members"), nb::arg("threads"))
      .def_prop_ro("log_pivots", &Factor::log_pivots)
      .def_prop_ro("indefinite", &Factor::indefinite);
}

double peak_multiply_adds(const std::string& instruction_set, double seconds) {
  const Target& target = target_named(instruction_set);
  const nb::gil_scoped_release release;
  const auto start = std::chrono::steady_clock::now();
  double done = 0, elapsed = 0;
  do {
    done += target.multiply_adds(1 << 16);
    elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } while (elapsed < seconds);
  return done / elapsed;
}

}  // namespace

NB_MODULE(_cpu, m) {
  m.doc() = "The compiled core of halfgp.backends.cpu.";
  main_thread = nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  m.attr("BLOCK") = kBlock;
  m.attr("LANDMARKS") = kLandmarks;
  m.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const Target* target : supported_targets()) names.emplace_back(target->name);
    return names;
  });
  m.def("has_fixed_point", [](const std::string& name) { return target_named(name).fixed_point; });
  m.def("peak_multiply_adds", &peak_multiply_adds, nb::arg("instruction_set"), nb::arg("seconds"));

  bind_descriptions(m);
  m.def("conditionals", &compute_conditionals, nb::arg("instruction_set"), nb::arg("single"), nb::arg("program"), nb::arg("features"),
        nb::arg("diagonal"), nb::arg("targets"), nb::arg("rows"), nb::arg("members"), nb::arg("explained").none(),
        nb::arg("residuals").noconvert(),
        nb::arg("deviations").noconvert(), nb::arg("factor").none(), nb::arg("by_diagonal").none(), nb::arg("by_features"),
        nb::arg("threads"));
  m.def("nearest", &find_nearest, nb::arg("instruction_set"), nb::arg("points"), nb::arg("positions").none(), nb::arg("queries"),
        nb::arg("own"), nb::arg("found").noconvert(), nb::arg("threads"));
  nb::class_<SparseFactor> sparse(m, "SparseFactor");
  bind_factor(sparse);
  sparse.def("__init__",
             [](SparseFactor* self, Table<const std::int64_t> columns, Table<const double> entries) {
               new (self) SparseFactor(columns.data(), entries.data(), static_cast<std::int64_t>(columns.shape(0)),
                                       static_cast<int>(columns.shape(1)));
             },
             nb::arg("columns"), nb::arg("entries"));
  bind_grouped_factor<float>(m, "GroupedFactor32");
  bind_grouped_factor<double>(m, "GroupedFactor64");
  nb::class_<Points>(m, "Points");
  m.def("pack", &make_points, nb::arg("program"), nb::arg("single"), nb::arg("near"), nb::arg("features"),
        nb::arg("order").none(), nb::arg("runs"));

  nb::class_<KernelMatrix> matrix(m, "Matrix");
  matrix
      .def("__init__",
           [](KernelMatrix* self, const std::string& instruction_set, bool single, const KernelProgram& program,
              std::shared_ptr<Points> rows, std::shared_ptr<Points> columns) {
             new (self) KernelMatrix(target_named(instruction_set), single, program, rows, columns);
           },
           nb::arg("instruction_set"), nb::arg("single"), nb::arg("program"), nb::arg("rows"), nb::arg("columns").none())
      .def("choose_tiles",
           [](KernelMatrix& self, bool skip_zeros, std::int64_t index, std::int64_t count, int threads) {
             run(threads, [&](const Execution& execution) { self.choose_tiles(skip_zeros, {index, count}, execution); });
           },
           nb::arg("skip_zeros"), nb::arg("index"), nb::arg("count"), nb::arg("threads"))
      .def("dropped",
           [](const KernelMatrix& self, int threads) {
             return run(threads, [&](const Execution& execution) { return self.dropped(execution); });
           },
           nb::arg("threads"))
      .def_prop_ro("tiles", &KernelMatrix::tiles)
      .def_prop_ro("share_skipped", &KernelMatrix::share_skipped)
      .def("store",
           [](KernelMatrix& self, Stored format, int threads) {
             run(threads, [&](const Execution& execution) { self.store(format, execution); });
           },
           nb::arg("format"), nb::arg("threads"));
  bind_scalar_type<float>(matrix);
  bind_scalar_type<double>(matrix);
}
