// PyTorch's allocator, with the tensors of the devices that have a stack in that stack.
//
// A request goes to the stack, unless a private pool is open for its stream: of a graph that is captured, of `torch.compile`, or of
// `torch.cuda.use_mem_pool`. Private pools stay PyTorch's own code, over segments that the stack gives. All else that this does not know
// goes to the allocator that was there before.
#ifndef ALLUVION_TORCH_ALLOCATOR_HPP
#define ALLUVION_TORCH_ALLOCATOR_HPP

#include "device.hpp"
#include "memory.hpp"
#include "snapshot.hpp"
#include "version.hpp"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace alluvion_torch {

using namespace c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using pluggable = torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;

// What a block may have at most. PyTorch has words of its own for more.
inline constexpr std::size_t most_bytes = std::size_t{1} << 60;

// What PyTorch's newer versions ask for is answered by the class that this derives from, so that they compile.
class allocator final : public pluggable {
public:
    // The one of the process, which deleters of tensors call until its very end: it is never destroyed.
    static allocator &the() {
        static allocator *const one = new allocator;
        return *one;
    }

    // Takes the place of the allocator that is there, with a stack for each of these devices, of which it takes a count.
    void install(std::vector<std::pair<DeviceIndex, alv_door_handle *>> const &stacks) {
        if (native_.load() == nullptr) {
            native_deleter_ = get()->raw_deleter();
            native_.store(get());
        }
        for (auto const &[index, stack] : stacks) {
            device &here = of(index);
            if (native().initialized()) here.limit.store(bytes_of(native().getMemoryFraction(index), index));
            here.set(stack);
        }
        // From now on it is PyTorch's allocator, also without a stack: tensors have its deleter.
        if (get() == this) return;
        c10::cuda::CUDACachingAllocator::allocator.store(this);
        c10::SetAllocator(c10::DeviceType::CUDA, this, 0);
    }

    bool is_installed() const {
        return std::any_of(devices_.begin(), devices_.end(), [](device const &each) { return each.has_stack(); });
    }

    // What keeps the stacks: blocks of theirs, segments that private pools have, and pools that are open.
    struct in_use {
        std::size_t blocks = 0;
        std::size_t segments = 0;
        std::size_t pools = 0;
        bool any() const { return blocks > 0 || segments > 0 || pools > 0; }
    };

    in_use used() {
        in_use now;
        now.blocks = blocks_.count();
        for (device &each : devices_) {
            each.waiting.each([&now](void *, block const &) { ++now.blocks; });
            now.segments += each.lent().size();
        }
        now.pools = captures_.load();
        return now;
    }

    // Takes the stacks away, with the counts that `install` took, if nothing of them is in use.
    in_use uninstall(std::vector<alv_door_handle *> &stacks) {
        device::require_no_visit();
        // Segments of private pools that are over go back.
        emptyCache({0, 0});
        // No request begins from here on, and those that had begun have ended after the wait.
        is_closing_.store(true);
        device::wait_for_visitors();
        for (device &each : devices_) {
            device::visit const visit;
            if (alv_door_handle *const stack = each.stack(visit)) collect(each, stack, how::wait);
        }
        in_use const now = used();
        if (!now.any()) {
            // A free may have taken the last block, and has yet to give it back.
            device::wait_for_visitors();
            for (device &each : devices_)
                if (alv_door_handle *const stack = each.remove()) stacks.push_back(stack);
            device::wait_for_visitors();
        }
        is_closing_.store(false);
        return now;
    }

    CUDAAllocator &native() const { return *native_.load(std::memory_order_relaxed); }

    // ---- Requests and frees.

    c10::DataPtr allocate(std::size_t bytes) override {
        DeviceIndex const index = c10::cuda::current_device();
        c10::cuda::CUDAStream const stream = c10::cuda::getCurrentCUDAStream(index);
        device &here = of(index);
        if (!is_closing_.load()) {
            device::visit const visit;
            alv_door_handle *const stack = here.stack(visit);
            if (is_ours(here, stack, bytes, stream.stream())) {
                here.know(stack, stream);
                void *const address = bytes > 0 ? take(here, stack, index, bytes, stream.stream()) : nullptr;
                return {address, address, &gone, c10::Device(c10::DeviceType::CUDA, index)};
            }
        }
        return swapped(detached([this, bytes] { return native().allocate(bytes); }));
    }

    c10::DeleterFnPtr raw_deleter() const override { return &gone; }

    void *raw_alloc(std::size_t bytes) override {
        return raw_alloc_with_stream(bytes, c10::cuda::getCurrentCUDAStream(c10::cuda::current_device()).stream());
    }

    void *raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override {
        if (bytes == 0) return nullptr;
        DeviceIndex const index = c10::cuda::current_device();
        device &here = of(index);
        if (!is_closing_.load()) {
            device::visit const visit;
            alv_door_handle *const stack = here.stack(visit);
            if (is_ours(here, stack, bytes, stream)) return take(here, stack, index, bytes, stream);
        }
        return detached([this, bytes, stream] { return native().raw_alloc_with_stream(bytes, stream); });
    }

    void raw_delete(void *address) override {
        if (address != nullptr && !give(address)) native().raw_delete(address);
    }

    void recordStream(c10::DataPtr const &pointer, c10::cuda::CUDAStream stream) override {
        void *const address = pointer.get();
        stream_of_device const user(stream.device_index(), stream.stream());
        bool const is_ours = blocks_.see(address, [&user](block &what) {
            bool const is_known = (user.second == what.stream && user.first == what.device) ||
                                  std::find(what.users.begin(), what.users.end(), user) != what.users.end();
            if (!is_known) what.users.push_back(user);
        });
        if (is_ours || address == nullptr) return;
        if (pointer.get_deleter() != &gone) return native().recordStream(pointer, stream);
        // PyTorch's own looks at nothing that has another deleter than its own.
        c10::DataPtr same(address, address, native_deleter_, pointer.device());
        try {
            native().recordStream(same, stream);
        } catch (...) {
            (void)same.release_context();
            throw;
        }
        (void)same.release_context();
    }

    // ---- Private pools.

    void beginAllocateToPool(DeviceIndex index, pool_id id, std::function<bool(cudaStream_t)> filter) override {
        device &here = of(index);
        if (here.has_stack() && may_own_pools() && !is_known(index, id)) {
            // Before PyTorch makes it, so that its segments are ours.
            native().createOrIncrefPool(index, id, as_allocator_of_pool(segments()));
            here.made(id);
        }
        native().beginAllocateToPool(index, id, filter);
        cudaStream_t const stream = c10::cuda::getCurrentCUDAStream(index).stream();
        captures_.fetch_add(1);
        here.open({id, std::move(filter), {index, stream}});
    }

    void endAllocateToPool(DeviceIndex index, pool_id id) override {
        native().endAllocateToPool(index, id);
        device &here = of(index);
        if (here.close(id)) captures_.fetch_sub(1);
        device::visit const visit;
        alv_door_handle *const stack = here.stack(visit);
        if (stack) collect(here, stack, how::after_a_capture);
    }

    void releasePool(DeviceIndex index, pool_id id) override {
        device &here = of(index);
        detached([this, &here, index, id] {
            native().releasePool(index, id);
            if (here.has_made(id) && native().getPoolUseCount(index, id) == 1 && here.unmake(id)) native().releasePool(index, id);
            return true;
        });
    }

    int getPoolUseCount(DeviceIndex index, pool_id id) override {
        int const count = native().getPoolUseCount(index, id);
        return of(index).has_made(id) ? count - 1 : count;
    }

    void createOrIncrefPool(DeviceIndex index, pool_id id, allocator_of_pool owner) override {
        if (owner == nullptr && of(index).has_stack() && may_own_pools() && !is_known(index, id)) owner = as_allocator_of_pool(segments());
        native().createOrIncrefPool(index, id, std::move(owner));
    }

    std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex index, pool_id id) override {
        return native().getCheckpointState(index, id);
    }

    CheckpointDelta setCheckpointPoolState(DeviceIndex index, std::shared_ptr<AllocatorState> state) override {
        CheckpointDelta delta = native().setCheckpointPoolState(index, std::move(state));
        for (c10::DataPtr &each : delta.dataptrs_allocd) each = swapped(std::move(each));
        return delta;
    }

    bool checkPoolLiveAllocations(DeviceIndex index, pool_id id, std::unordered_set<void *> const &live) override {
        return native().checkPoolLiveAllocations(index, id, live);
    }

    // ---- What is out, and what was.

    DeviceStats getDeviceStats(DeviceIndex index) override {
        DeviceStats sum = native().getDeviceStats(index);
        device &here = of(index);
        device::visit const visit;
        alv_door_handle *const stack = here.stack(visit);
        if (stack) here.figures.add_to(sum, here.reserved(stack));
        return sum;
    }

    void resetAccumulatedStats(DeviceIndex index) override {
        native().resetAccumulatedStats(index);
        of(index).figures.reset_accumulated();
    }

    void resetPeakStats(DeviceIndex index) override {
        native().resetPeakStats(index);
        device &here = of(index);
        device::visit const visit;
        alv_door_handle *const stack = here.stack(visit);
        if (stack) here.figures.reset_peak(here.reserved(stack));
    }

    void recordHistoryHere(bool enabled, CreateContextFn recorder, std::size_t most, RecordContext when, bool clear,
                           std::vector<std::string> const &skipped) {
        recording_.set(enabled, recorder, most, when);
        for (device &each : devices_) {
            each.history.skip(actions_of(skipped));
            if (clear || !enabled) each.history.clear();
        }
    }

    bool isHistoryEnabled() override { return native().isHistoryEnabled(); }

    void recordAnnotation(std::vector<std::pair<std::string, std::string>> const &names) override { native().recordAnnotation(names); }

    void pushCompileContext(std::string &name) override {
        compile_contexts().push_back(name);
        native().pushCompileContext(name);
    }

    void popCompileContext() override {
        if (!compile_contexts().empty()) compile_contexts().pop_back();
        native().popCompileContext();
    }

    void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override {
        {
            std::lock_guard<std::mutex> const lock(observers_mutex_);
            observers_.push_back(std::make_shared<OutOfMemoryObserver const>(observer));
        }
        native().attachOutOfMemoryObserver(std::move(observer));
    }

    void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override { native().attachAllocatorTraceTracker(std::move(tracker)); }

    // ---- The rest.

    // May come twice. The settings of the environment have a fraction of the memory, too.
    void init(int count) override {
        native().init(count);
        for (std::size_t at = 0; at < devices_.size() && at < static_cast<std::size_t>(count); ++at) {
            auto const index = static_cast<DeviceIndex>(at);
            if (devices_[at].has_stack()) devices_[at].limit.store(bytes_of(native().getMemoryFraction(index), index));
        }
    }
    bool initialized() override { return native().initialized(); }
    void enable(bool value) override { native().enable(value); }
    bool isEnabled() const override { return native().isEnabled(); }
    std::string name() override { return native().name(); }

    // The largest block that may be had: cuDNN bounds its workspaces by it.
    void cacheInfo(DeviceIndex index, std::size_t *largest) override {
        native().cacheInfo(index, largest);
        device &here = of(index);
        device::visit const visit;
        alv_door_handle *const stack = here.stack(visit);
        if (stack == nullptr) return;
        std::size_t const reserved = here.reserved(stack), active = static_cast<std::size_t>(here.figures.active_bytes());
        if (reserved > active) *largest = std::max(*largest, reserved - active);
    }

    double getMemoryFraction(DeviceIndex index) override { return native().getMemoryFraction(index); }

    void setMemoryFraction(double fraction, DeviceIndex index) override {
        native().setMemoryFraction(fraction, index);
        of(index).limit.store(bytes_of(fraction, index));
    }

    // PyTorch's own memory goes back first: private pools that are over give their segments to the stack.
    void emptyCache(pool_id id) override {
        detached([this, id] {
            native().emptyCache(id);
            if (id.first != 0 || id.second != 0) return true;
            for (device &each : devices_) {
                device::visit const visit;
                alv_door_handle *const stack = each.stack(visit);
                if (stack == nullptr) continue;
                collect(each, stack, anything_captures() ? how::look : how::wait);
                beside_captures const guard(captures_.load() > 0);
                (void)table()->trim(stack, 0, nullptr);
            }
            return true;
        });
    }

    void *getBaseAllocation(void *address, std::size_t *bytes) override {
        DeviceIndex index = -1;
        if (!blocks_.see(address, [&index](block const &what) { index = what.device; })) return native().getBaseAllocation(address, bytes);
        device::visit const visit;
        alv_door_handle *const stack = of(index).stack(visit);
        void *base = nullptr;
        if (!stack || table()->address_range(stack, address, &base, bytes) != ALV_DOOR_OK)
            TORCH_CHECK(false, "alluvion: ", table()->last_error_message());
        return base;
    }

    // A handle of the driver's alone, which every version of PyTorch takes for one of `cudaMalloc`.
    ShareableHandle shareIpcHandle(void *address) override {
        if (!blocks_.see(address, [](block const &) {})) return native().shareIpcHandle(address);
        void *const base = getBaseAllocation(address, nullptr);
        cudaIpcMemHandle_t handle;
        if (cudaIpcGetMemHandle(&handle, base) != cudaSuccess) {
            (void)cudaGetLastError();
            TORCH_CHECK(false, "alluvion: the memory of this stack cannot be shared with another process by PyTorch: "
                               "take a source that allocates by `cudaMalloc`, as `pool | cuda`, or share a copy of the tensor in host memory");
        }
        std::string bytes(reinterpret_cast<char const *>(&handle), CUDA_IPC_HANDLE_SIZE);
        return {static_cast<char *>(address) - static_cast<char *>(base), std::move(bytes)};
    }

    std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return native().getIpcDevPtr(std::move(handle)); }
    void enablePeerAccess(DeviceIndex one, DeviceIndex other) override { native().enablePeerAccess(one, other); }

    // Pages are out of reach of a copy that names no device, whatever PyTorch's own setting says.
    cudaError_t memcpyAsync(void *to, int to_device, void const *from, int from_device, std::size_t bytes, cudaStream_t stream,
                            bool peers) override {
        if (to_device != from_device) return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
        return native().memcpyAsync(to, to_device, from, from_device, bytes, stream, peers);
    }

#include "forwarded.inc"

private:
    allocator()
        : pluggable([](std::size_t, int, cudaStream_t) -> void * { return nullptr; }, [](void *, std::size_t, int, cudaStream_t) {}) {}

    device &of(DeviceIndex index) {
        TORCH_CHECK(index >= 0 && static_cast<std::size_t>(index) < devices_.size(), "alluvion: there is no device ", static_cast<int>(index));
        return devices_[static_cast<std::size_t>(index)];
    }

    // Within a visit: a stack that is found here stays.
    bool is_ours(device &here, alv_door_handle *stack, std::size_t bytes, cudaStream_t stream) {
        if (stack == nullptr || is_closing_.load() || bytes > most_bytes || !native().isEnabled()) return false;
        return !here.has_open_pools() || !here.is_for_a_pool(stream);
    }

    // Whether PyTorch has such a pool. For one that it has not, it throws.
    bool is_known(DeviceIndex index, pool_id id) const {
        try {
            return native().getPoolUseCount(index, id) > 0;
        } catch (c10::Error const &) {
            return false;
        }
    }

    // The deleter of all tensors. What PyTorch's own allocator gave out goes to the deleter that it had.
    static void gone(void *address) {
        if (address == nullptr) return;
        try {
            if (!the().give(address)) the().native_deleter_(address);
        } catch (std::exception const &error) {
            TORCH_WARN("alluvion: a free has failed: ", error.what());
        }
    }

    c10::DataPtr swapped(c10::DataPtr pointer) {
        // Memory that is not cached, as while PyTorch's allocator is disabled, has another one, and keeps it.
        (void)pointer.compare_exchange_deleter(native_deleter_, &gone);
        return pointer;
    }

    // Whether a stream captures that an open pool is for, on any device.
    bool anything_captures() {
        if (captures_.load() == 0) return false;
        return std::any_of(devices_.begin(), devices_.end(), [](device &each) { return each.is_captured(); });
    }

    // One request of the stack. A size that no stack can have is memory that there is not.
    static int32_t ask(alv_door_handle *stack, std::size_t bytes, cudaStream_t stream, void **address) {
        int32_t const status = table()->allocate(stack, bytes, alignment, stream, address);
        return status == ALV_DOOR_SIZE_OVERFLOW ? int32_t{ALV_DOOR_OUT_OF_MEMORY} : status;
    }

    void *take(device &here, alv_door_handle *stack, DeviceIndex index, std::size_t requested, cudaStream_t stream) {
        auto context = recording_.gather(RecordContext::STATE);
        std::size_t const bytes = (requested + granularity - 1) / granularity * granularity;
        if (here.waiting.any()) collect(here, stack, how::look);
        void *address = nullptr;
        int32_t status = ALV_DOOR_OUT_OF_MEMORY;
        {
            beside_captures const guard(captures_.load(std::memory_order_relaxed) > 0);
            if (is_within_limit(here, bytes)) status = ask(stack, bytes, stream, &address);
            if (status == ALV_DOOR_OUT_OF_MEMORY) status = ask_harder(here, stack, bytes, stream, &address);
        }
        if (status == ALV_DOOR_OUT_OF_MEMORY) refuse(here, index, requested, bytes, stream, context);
        TORCH_CHECK(status == ALV_DOOR_OK, "alluvion: ", table()->last_error_message());
        here.figures.allocated(bytes, requested, here.reserved(stack));
        here.history.add(recording_, native(), index, TraceEntry::ALLOC, address, requested, stream, context);
        blocks_.add(address, {bytes, requested, index, stream, {}, std::move(context)});
        tell_profiler(here, stack, index, address, static_cast<int64_t>(bytes));
        if (auto const *const trace = c10::impl::GPUTrace::get_trace()) [[unlikely]]
            (*trace)->trace_gpu_memory_allocation(c10::DeviceType::CUDA, reinterpret_cast<std::uintptr_t>(address));
        return address;
    }

    static void tell_profiler(device &here, alv_door_handle *stack, DeviceIndex index, void *address, int64_t bytes) {
        if (!c10::memoryProfilingEnabled()) return;
        c10::reportMemoryUsageToProfiler(address, bytes, static_cast<std::size_t>(here.figures.active_bytes()), here.reserved(stack),
                                         c10::Device(c10::DeviceType::CUDA, index));
    }

    static bool is_within_limit(device &here, std::size_t bytes) {
        std::size_t const limit = here.limit.load(std::memory_order_relaxed);
        if (limit == std::numeric_limits<std::size_t>::max()) return true;
        std::size_t const had = static_cast<std::size_t>(here.figures.active_bytes()) + here.lent_bytes();
        return bytes <= limit && had <= limit - bytes;
    }

    // After a refusal: what waits for streams is waited for, and what PyTorch caches or others can do without is given back.
    int32_t ask_harder(device &here, alv_door_handle *stack, std::size_t bytes, cudaStream_t stream, void **address) {
        here.figures.retried();
        auto const again = [&] { return is_within_limit(here, bytes) ? ask(stack, bytes, stream, address) : int32_t{ALV_DOOR_OUT_OF_MEMORY}; };
        bool has_freed = collect(here, stack, how::wait);
        for (std::string const &name : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
            has_freed = c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute() || has_freed;
        if (has_freed) {
            int32_t const status = again();
            if (status != ALV_DOOR_OUT_OF_MEMORY) return status;
        }
        // To free memory of the driver's breaks a capture.
        if (!anything_captures()) {
            detached([this] {
                native().emptyCache({0, 0});
                return true;
            });
            collect(here, stack, how::wait);
        }
        return again();
    }

    [[noreturn]] void refuse(device &here, DeviceIndex index, std::size_t requested, std::size_t bytes, cudaStream_t stream,
                             std::shared_ptr<c10::GatheredContext> const &context) {
        std::string const report = is_within_limit(here, bytes) ? table()->last_error_message()
                                                                : "this process may have no more of it: see set_per_process_memory_fraction";
        here.figures.refused();
        auto const [free, total] = memory_of(index);
        here.history.add(recording_, native(), index, TraceEntry::OOM, reinterpret_cast<void *>(free), bytes, stream, context);
        c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), static_cast<std::size_t>(here.figures.active_bytes()), 0,
                                         c10::Device(c10::DeviceType::CUDA, index));
        std::vector<std::shared_ptr<OutOfMemoryObserver const>> observers;
        {
            std::lock_guard<std::mutex> const lock(observers_mutex_);
            observers = observers_;
        }
        auto const allocated = static_cast<std::size_t>(here.figures.active_bytes());
        for (auto const &each : observers) (*each)(index, bytes, total, free);
        TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", shown(requested), ". GPU ",
                         static_cast<int>(index), " has a total capacity of ", shown(total), " of which ", shown(free),
                         " is free. Tensors have ", shown(allocated), ". ", report);
        std::abort();
    }

    // Frees a block of ours; whether it was one.
    bool give(void *address) {
        // Before the block is taken: the stack stays while it has blocks.
        device::visit const visit;
        auto const context = recording_.gather(RecordContext::ALL);
        std::optional<block> taken = blocks_.take(address);
        if (!taken) return false;
        device &here = of(taken->device);
        alv_door_handle *const stack = here.stack(visit);
        if (auto const *const trace = c10::impl::GPUTrace::get_trace()) [[unlikely]]
            (*trace)->trace_gpu_memory_deallocation(c10::DeviceType::CUDA, reinterpret_cast<std::uintptr_t>(address));
        here.history.add(recording_, native(), taken->device, TraceEntry::FREE_REQUESTED, address, taken->requested, taken->stream,
                         context ? context : taken->context);
        DeviceIndex const index = taken->device;
        std::size_t const bytes = taken->bytes;
        if (taken->users.empty() && captures_.load(std::memory_order_relaxed) == 0) {
            here.figures.freed_and_completed(bytes, taken->requested);
            release(here, stack, address, *taken);
        } else {
            here.figures.freed(bytes);
            let_go(here, stack, address, std::move(*taken));
        }
        tell_profiler(here, stack, index, address, -static_cast<int64_t>(bytes));
        return true;
    }

    // Gives a block back that is free for PyTorch, or has it wait.
    void let_go(device &here, alv_door_handle *stack, void *address, block what) {
        bool const beside = captures_.load(std::memory_order_relaxed) > 0;
        beside_captures const guard(beside);
        if (beside && (captures({what.device, what.stream}) || std::any_of(what.users.begin(), what.users.end(), captures)))
            return here.waiting.behind_a_capture(address, std::move(what));
        if (!what.users.empty()) return here.waiting.behind_its_users(address, std::move(what));
        complete(here, stack, address, what);
    }

    void complete(device &here, alv_door_handle *stack, void *address, block const &what) {
        here.figures.completed(what.bytes, what.requested);
        release(here, stack, address, what);
    }

    void release(device &here, alv_door_handle *stack, void *address, block const &what) {
        here.history.add(recording_, native(), what.device, TraceEntry::FREE_COMPLETED, address, what.requested, what.stream, what.context);
        table()->deallocate(stack, address, what.bytes, alignment, what.stream);
    }

    // Whether to wait for the streams, and whether a capture has just ended.
    enum class how { look, wait, after_a_capture };

    // Gives back what has waited long enough. Whether that was anything.
    bool collect(device &here, alv_door_handle *stack, how much) {
        if (!here.waiting.any()) return false;
        bool const beside = captures_.load(std::memory_order_relaxed) > 0;
        beside_captures const guard(beside);
        // Not at each request: the captures have to be asked for each block.
        if (!beside || much != how::look) {
            for (auto &[address, what] : here.waiting.from_captures()) let_go(here, stack, address, std::move(what));
            if (!anything_captures())
                for (void *const address : here.waiting.segments()) give_back(here, stack, address);
        }
        auto const done = here.waiting.done(much == how::wait);
        if (much == how::wait) here.figures.waited_for_all();
        for (auto const &[address, what] : done) complete(here, stack, address, what);
        return !done.empty();
    }

    // The segments of private pools.
    std::shared_ptr<CUDAAllocator> const &segments() {
        static auto const *const one = new std::shared_ptr<CUDAAllocator>(std::make_shared<pluggable>(
            [](std::size_t bytes, int index, cudaStream_t) { return the().lend(static_cast<DeviceIndex>(index), bytes); },
            [](void *address, std::size_t, int index, cudaStream_t) { the().take_back(static_cast<DeviceIndex>(index), address); }));
        return *one;
    }

    // Null has PyTorch give back what it caches, ask again, and say that there is no memory. Without a stack the segment is the driver's.
    void *lend(DeviceIndex index, std::size_t bytes) {
        device &here = of(index);
        device::visit const visit;
        alv_door_handle *const stack = here.stack(visit);
        beside_captures const guard(true);
        void *address = nullptr;
        if (stack == nullptr || is_closing_.load()) {
            c10::cuda::CUDAGuard const there(index);
            if (cudaMalloc(&address, bytes) == cudaSuccess) return address;
            (void)cudaGetLastError();
            return nullptr;
        }
        here.will_lend(bytes);
        int32_t status = table()->allocate_sync(stack, bytes, alignment, &address);
        if (status == ALV_DOOR_OUT_OF_MEMORY && collect(here, stack, how::wait))
            status = table()->allocate_sync(stack, bytes, alignment, &address);
        if (status == ALV_DOOR_OK) {
            here.lend(address, bytes);
            return address;
        }
        here.has_not_lent(bytes);
        TORCH_CHECK(status == ALV_DOOR_OUT_OF_MEMORY, "alluvion: ", table()->last_error_message());
        return nullptr;
    }

    void take_back(DeviceIndex index, void *address) {
        device &here = of(index);
        device::visit const visit;
        alv_door_handle *const stack = here.stack(visit);
        // To wait for the device would break a capture, also one of another thread.
        if (anything_captures()) return here.waiting.segment_behind_captures(address);
        give_back(here, stack, address);
    }

    void give_back(device &here, alv_door_handle *stack, void *address) {
        c10::cuda::CUDAGuard const there(static_cast<DeviceIndex>(&here - devices_.data()));
        std::size_t const bytes = here.unlend(address);
        if (bytes == 0) {
            // Of the driver, as `lend` had it.
            if (cudaFree(address) != cudaSuccess) (void)cudaGetLastError();
            return;
        }
        // PyTorch relies on `cudaFree`, which waits for the device.
        if (cudaDeviceSynchronize() != cudaSuccess) (void)cudaGetLastError();
        table()->deallocate_sync(stack, address, bytes, alignment);
        here.has_not_lent(bytes);
    }

    // The blocks of a device, those among them that PyTorch has freed and that wait.
    std::vector<seen_block> blocks_of(DeviceIndex index) {
        std::vector<seen_block> all;
        blocks_.each([&](void *address, block const &what) {
            if (what.device == index) all.push_back({reinterpret_cast<std::size_t>(address), what, false});
        });
        devices_[static_cast<std::size_t>(index)].waiting.each(
            [&](void *address, block const &what) { all.push_back({reinterpret_cast<std::size_t>(address), what, true}); });
        std::sort(all.begin(), all.end(), [](seen_block const &one, seen_block const &other) { return one.address < other.address; });
        return all;
    }

    SnapshotInfo with_ours(SnapshotInfo sum) {
        for (std::size_t at = 0; at < devices_.size(); ++at) {
            auto const index = static_cast<DeviceIndex>(at);
            device &here = devices_[at];
            device::visit const visit;
            alv_door_handle *const stack = here.stack(visit);
            if (!stack) continue;
            auto const blocks = blocks_of(index);
            add_segments(sum, index, without(pieces_of(stack, blocks), here.lent()), blocks);
            add_traces(sum, at, here.history.entries());
        }
        return sum;
    }

    std::atomic<CUDAAllocator *> native_{nullptr};
    c10::DeleterFnPtr native_deleter_ = nullptr;
    // The stacks are about to go: no request begins.
    std::atomic<bool> is_closing_{false};
    std::array<device, 128> devices_;
    blocks blocks_;
    recording recording_;
    // How many pools are open, on all devices: each may be a capture.
    std::atomic<std::size_t> captures_{0};
    std::mutex observers_mutex_;
    std::vector<std::shared_ptr<OutOfMemoryObserver const>> observers_;
};

} // namespace alluvion_torch

#endif
