// SPDX-License-Identifier: MIT
/*
 * api_vulkan - a load of the GPU benchmarks that speaks Vulkan and knows nothing of rtxg. The
 * loader is opened at run time, so that only the headers are needed to build it.
 *
 *   api_vulkan SECONDS OUT [DEVICE]
 *
 * Dispatches of about 1 ms back to back on the first device whose name begins with DEVICE
 * ("NVIDIA"). Every 5 ms one line "CLOCK_MONOTONIC ns, dispatches completed" goes to OUT.
 */
#define VK_NO_PROTOTYPES
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

#define AHEAD	 4    /* dispatches that are submitted and not completed */
#define GROUPS	 1024 /* of 256: enough for every thread slot of a large GPU */
#define TARGET_S 0.001

/*
 * glslangValidator -V --target-env vulkan1.0 -x, of:
 *
 *	#version 450
 *	layout(local_size_x = 256) in;
 *	layout(std430, binding = 0) buffer Result { float result[]; };
 *	layout(push_constant) uniform Push { uint turns; };
 *	void main()
 *	{
 *		float x = float(gl_GlobalInvocationID.x);
 *		for (uint i = 0u; i < turns; i++)
 *			x = x * 1.000001 + 0.5;
 *		if (x == 12345.678)
 *			result[0] = x;
 *	}
 */
static const uint32_t shader[] = {
	0x07230203, 0x00010000, 0x0008000b, 0x0000003b, 0x00000000, 0x00020011, 0x00000001,
	0x0006000b, 0x00000001, 0x4c534c47, 0x6474732e, 0x3035342e, 0x00000000, 0x0003000e,
	0x00000000, 0x00000001, 0x0006000f, 0x00000005, 0x00000004, 0x6e69616d, 0x00000000,
	0x0000000c, 0x00060010, 0x00000004, 0x00000011, 0x00000100, 0x00000001, 0x00000001,
	0x00030003, 0x00000002, 0x000001c2, 0x00040005, 0x00000004, 0x6e69616d, 0x00000000,
	0x00030005, 0x00000008, 0x00000078, 0x00080005, 0x0000000c, 0x475f6c67, 0x61626f6c,
	0x766e496c, 0x7461636f, 0x496e6f69, 0x00000044, 0x00030005, 0x00000013, 0x00000069,
	0x00040005, 0x0000001a, 0x68737550, 0x00000000, 0x00050006, 0x0000001a, 0x00000000,
	0x6e727574, 0x00000073, 0x00030005, 0x0000001c, 0x00000000, 0x00040005, 0x00000032,
	0x75736552, 0x0000746c, 0x00050006, 0x00000032, 0x00000000, 0x75736572, 0x0000746c,
	0x00030005, 0x00000034, 0x00000000, 0x00040047, 0x0000000c, 0x0000000b, 0x0000001c,
	0x00050048, 0x0000001a, 0x00000000, 0x00000023, 0x00000000, 0x00030047, 0x0000001a,
	0x00000002, 0x00040047, 0x00000031, 0x00000006, 0x00000004, 0x00050048, 0x00000032,
	0x00000000, 0x00000023, 0x00000000, 0x00030047, 0x00000032, 0x00000003, 0x00040047,
	0x00000034, 0x00000022, 0x00000000, 0x00040047, 0x00000034, 0x00000021, 0x00000000,
	0x00040047, 0x0000003a, 0x0000000b, 0x00000019, 0x00020013, 0x00000002, 0x00030021,
	0x00000003, 0x00000002, 0x00030016, 0x00000006, 0x00000020, 0x00040020, 0x00000007,
	0x00000007, 0x00000006, 0x00040015, 0x00000009, 0x00000020, 0x00000000, 0x00040017,
	0x0000000a, 0x00000009, 0x00000003, 0x00040020, 0x0000000b, 0x00000001, 0x0000000a,
	0x0004003b, 0x0000000b, 0x0000000c, 0x00000001, 0x0004002b, 0x00000009, 0x0000000d,
	0x00000000, 0x00040020, 0x0000000e, 0x00000001, 0x00000009, 0x00040020, 0x00000012,
	0x00000007, 0x00000009, 0x0003001e, 0x0000001a, 0x00000009, 0x00040020, 0x0000001b,
	0x00000009, 0x0000001a, 0x0004003b, 0x0000001b, 0x0000001c, 0x00000009, 0x00040015,
	0x0000001d, 0x00000020, 0x00000001, 0x0004002b, 0x0000001d, 0x0000001e, 0x00000000,
	0x00040020, 0x0000001f, 0x00000009, 0x00000009, 0x00020014, 0x00000022, 0x0004002b,
	0x00000006, 0x00000025, 0x3f800008, 0x0004002b, 0x00000006, 0x00000027, 0x3f000000,
	0x0004002b, 0x0000001d, 0x0000002a, 0x00000001, 0x0004002b, 0x00000006, 0x0000002d,
	0x4640e6b6, 0x0003001d, 0x00000031, 0x00000006, 0x0003001e, 0x00000032, 0x00000031,
	0x00040020, 0x00000033, 0x00000002, 0x00000032, 0x0004003b, 0x00000033, 0x00000034,
	0x00000002, 0x00040020, 0x00000036, 0x00000002, 0x00000006, 0x0004002b, 0x00000009,
	0x00000038, 0x00000100, 0x0004002b, 0x00000009, 0x00000039, 0x00000001, 0x0006002c,
	0x0000000a, 0x0000003a, 0x00000038, 0x00000039, 0x00000039, 0x00050036, 0x00000002,
	0x00000004, 0x00000000, 0x00000003, 0x000200f8, 0x00000005, 0x0004003b, 0x00000007,
	0x00000008, 0x00000007, 0x0004003b, 0x00000012, 0x00000013, 0x00000007, 0x00050041,
	0x0000000e, 0x0000000f, 0x0000000c, 0x0000000d, 0x0004003d, 0x00000009, 0x00000010,
	0x0000000f, 0x00040070, 0x00000006, 0x00000011, 0x00000010, 0x0003003e, 0x00000008,
	0x00000011, 0x0003003e, 0x00000013, 0x0000000d, 0x000200f9, 0x00000014, 0x000200f8,
	0x00000014, 0x000400f6, 0x00000016, 0x00000017, 0x00000000, 0x000200f9, 0x00000018,
	0x000200f8, 0x00000018, 0x0004003d, 0x00000009, 0x00000019, 0x00000013, 0x00050041,
	0x0000001f, 0x00000020, 0x0000001c, 0x0000001e, 0x0004003d, 0x00000009, 0x00000021,
	0x00000020, 0x000500b0, 0x00000022, 0x00000023, 0x00000019, 0x00000021, 0x000400fa,
	0x00000023, 0x00000015, 0x00000016, 0x000200f8, 0x00000015, 0x0004003d, 0x00000006,
	0x00000024, 0x00000008, 0x00050085, 0x00000006, 0x00000026, 0x00000024, 0x00000025,
	0x00050081, 0x00000006, 0x00000028, 0x00000026, 0x00000027, 0x0003003e, 0x00000008,
	0x00000028, 0x000200f9, 0x00000017, 0x000200f8, 0x00000017, 0x0004003d, 0x00000009,
	0x00000029, 0x00000013, 0x00050080, 0x00000009, 0x0000002b, 0x00000029, 0x0000002a,
	0x0003003e, 0x00000013, 0x0000002b, 0x000200f9, 0x00000014, 0x000200f8, 0x00000016,
	0x0004003d, 0x00000006, 0x0000002c, 0x00000008, 0x000500b4, 0x00000022, 0x0000002e,
	0x0000002c, 0x0000002d, 0x000300f7, 0x00000030, 0x00000000, 0x000400fa, 0x0000002e,
	0x0000002f, 0x00000030, 0x000200f8, 0x0000002f, 0x0004003d, 0x00000006, 0x00000035,
	0x00000008, 0x00060041, 0x00000036, 0x00000037, 0x00000034, 0x0000001e, 0x0000001e,
	0x0003003e, 0x00000037, 0x00000035, 0x000200f9, 0x00000030, 0x000200f8, 0x00000030,
	0x000100fd, 0x00010038,
};

static PFN_vkGetInstanceProcAddr instance_function;
static VkInstance instance;

/* vk(Name)(arguments): the loader's function of that name */
#define vk(name) ((PFN_vk##name)function("vk" #name))

static PFN_vkVoidFunction function(const char *name)
{
	PFN_vkVoidFunction f = instance_function(instance, name);

	if (!f) {
		fprintf(stderr, "api_vulkan: the loader has no %s\n", name);
		exit(1);
	}
	return f;
}

static void check(VkResult result, const char *what)
{
	if (result) {
		fprintf(stderr, "api_vulkan: %s: VkResult %d\n", what, result);
		exit(1);
	}
}

static unsigned long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (unsigned long long)ts.tv_sec * 1000000000ull + (unsigned long long)ts.tv_nsec;
}

struct load {
	VkPhysicalDevice physical;
	VkDevice device;
	VkQueue queue;
	uint32_t family;
	VkDescriptorSetLayout set_layout;
	VkDescriptorSet set;
	VkPipelineLayout layout;
	VkPipeline pipeline;
	VkCommandPool pool;
	VkCommandBuffer command[AHEAD];
	VkFence fence[AHEAD];
	uint32_t turns;
};

static void open_device(struct load *l, const char *name)
{
	VkApplicationInfo application = { .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
					  .apiVersion = VK_API_VERSION_1_0 };
	VkInstanceCreateInfo info = { .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
				      .pApplicationInfo = &application };
	VkDeviceQueueCreateInfo queue = { .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
					  .queueCount = 1,
					  .pQueuePriorities = (const float[]){ 1 } };
	VkDeviceCreateInfo device = { .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
				      .queueCreateInfoCount = 1,
				      .pQueueCreateInfos = &queue };
	VkQueueFamilyProperties families[32];
	VkPhysicalDevice found[16];
	uint32_t count = 16;

	check(vk(CreateInstance)(&info, NULL, &instance), "vkCreateInstance");
	check(vk(EnumeratePhysicalDevices)(instance, &count, found), "vkEnumeratePhysicalDevices");
	for (uint32_t i = 0; i < count && !l->physical; i++) {
		VkPhysicalDeviceProperties p;

		vk(GetPhysicalDeviceProperties)(found[i], &p);
		if (!strncmp(p.deviceName, name, strlen(name)))
			l->physical = found[i];
	}
	if (!l->physical) {
		fprintf(stderr, "api_vulkan: none of %u devices is called '%s...'\n", count, name);
		exit(1);
	}
	count = 32;
	vk(GetPhysicalDeviceQueueFamilyProperties)(l->physical, &count, families);
	for (l->family = 0; l->family < count; l->family++)
		if (families[l->family].queueFlags & VK_QUEUE_COMPUTE_BIT)
			break;
	queue.queueFamilyIndex = l->family;
	check(vk(CreateDevice)(l->physical, &device, NULL, &l->device), "vkCreateDevice");
	vk(GetDeviceQueue)(l->device, l->family, 0, &l->queue);
}

static uint32_t memory_type(const struct load *l, uint32_t bits)
{
	VkPhysicalDeviceMemoryProperties p;

	vk(GetPhysicalDeviceMemoryProperties)(l->physical, &p);
	for (uint32_t i = 0; i < p.memoryTypeCount; i++)
		if (bits & (1u << i) &&
		    p.memoryTypes[i].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)
			return i;
	return 0;
}

static VkBuffer make_buffer(const struct load *l)
{
	VkBufferCreateInfo info = { .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
				    .size = 4096,
				    .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT };
	VkMemoryAllocateInfo allocate = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO };
	VkMemoryRequirements needs;
	VkDeviceMemory memory;
	VkBuffer buffer;

	check(vk(CreateBuffer)(l->device, &info, NULL, &buffer), "vkCreateBuffer");
	vk(GetBufferMemoryRequirements)(l->device, buffer, &needs);
	allocate.allocationSize = needs.size;
	allocate.memoryTypeIndex = memory_type(l, needs.memoryTypeBits);
	check(vk(AllocateMemory)(l->device, &allocate, NULL, &memory), "vkAllocateMemory");
	check(vk(BindBufferMemory)(l->device, buffer, memory, 0), "vkBindBufferMemory");
	return buffer;
}

static void make_set(struct load *l)
{
	VkDescriptorSetLayoutBinding binding = { .descriptorType =
							 VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
						 .descriptorCount = 1,
						 .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT };
	VkDescriptorSetLayoutCreateInfo layout = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
		.bindingCount = 1,
		.pBindings = &binding
	};
	VkDescriptorPoolSize size = { VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1 };
	VkDescriptorPoolCreateInfo pool_info = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
		.maxSets = 1,
		.poolSizeCount = 1,
		.pPoolSizes = &size
	};
	VkDescriptorSetAllocateInfo allocate = {
		.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, .descriptorSetCount = 1
	};
	VkDescriptorBufferInfo buffer = { .buffer = make_buffer(l), .range = VK_WHOLE_SIZE };
	VkWriteDescriptorSet write = { .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
				       .descriptorCount = 1,
				       .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
				       .pBufferInfo = &buffer };

	check(vk(CreateDescriptorSetLayout)(l->device, &layout, NULL, &l->set_layout),
	      "vkCreateDescriptorSetLayout");
	check(vk(CreateDescriptorPool)(l->device, &pool_info, NULL, &allocate.descriptorPool),
	      "vkCreateDescriptorPool");
	allocate.pSetLayouts = &l->set_layout;
	check(vk(AllocateDescriptorSets)(l->device, &allocate, &l->set),
	      "vkAllocateDescriptorSets");
	write.dstSet = l->set;
	vk(UpdateDescriptorSets)(l->device, 1, &write, 0, NULL);
}

static void make_pipeline(struct load *l)
{
	VkPushConstantRange push = { VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(l->turns) };
	VkPipelineLayoutCreateInfo layout = { .sType =
						      VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
					      .setLayoutCount = 1,
					      .pSetLayouts = &l->set_layout,
					      .pushConstantRangeCount = 1,
					      .pPushConstantRanges = &push };
	VkShaderModuleCreateInfo code = { .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
					  .codeSize = sizeof(shader),
					  .pCode = shader };
	VkComputePipelineCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
		.stage = { .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
			   .stage = VK_SHADER_STAGE_COMPUTE_BIT,
			   .pName = "main" }
	};

	check(vk(CreatePipelineLayout)(l->device, &layout, NULL, &l->layout),
	      "vkCreatePipelineLayout");
	check(vk(CreateShaderModule)(l->device, &code, NULL, &info.stage.module),
	      "vkCreateShaderModule");
	info.layout = l->layout;
	check(vk(CreateComputePipelines)(l->device, VK_NULL_HANDLE, 1, &info, NULL, &l->pipeline),
	      "vkCreateComputePipelines");
}

static void make_commands(struct load *l)
{
	VkCommandPoolCreateInfo pool = { .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
					 .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
					 .queueFamilyIndex = l->family };
	VkCommandBufferAllocateInfo allocate = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		.commandBufferCount = AHEAD
	};
	VkFenceCreateInfo fence = { .sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO };

	check(vk(CreateCommandPool)(l->device, &pool, NULL, &l->pool), "vkCreateCommandPool");
	allocate.commandPool = l->pool;
	check(vk(AllocateCommandBuffers)(l->device, &allocate, l->command),
	      "vkAllocateCommandBuffers");
	for (int i = 0; i < AHEAD; i++)
		check(vk(CreateFence)(l->device, &fence, NULL, &l->fence[i]), "vkCreateFence");
}

static void submit(struct load *l, unsigned int slot)
{
	VkCommandBufferBeginInfo begin = { .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO };
	VkCommandBuffer c = l->command[slot];
	VkSubmitInfo info = { .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
			      .commandBufferCount = 1,
			      .pCommandBuffers = &c };

	check(vk(BeginCommandBuffer)(c, &begin), "vkBeginCommandBuffer");
	vk(CmdBindPipeline)(c, VK_PIPELINE_BIND_POINT_COMPUTE, l->pipeline);
	vk(CmdBindDescriptorSets)(c, VK_PIPELINE_BIND_POINT_COMPUTE, l->layout, 0, 1, &l->set, 0,
				  NULL);
	vk(CmdPushConstants)(c, l->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(l->turns),
			     &l->turns);
	vk(CmdDispatch)(c, GROUPS, 1, 1);
	check(vk(EndCommandBuffer)(c), "vkEndCommandBuffer");
	check(vk(ResetFences)(l->device, 1, &l->fence[slot]), "vkResetFences");
	check(vk(QueueSubmit)(l->queue, 1, &info, l->fence[slot]), "vkQueueSubmit");
}

/* As many turns as make a dispatch of about a millisecond, now that nothing else runs. */
static void calibrate(struct load *l)
{
	l->turns = 1000;
	for (int i = 0; i < 12; i++) {
		unsigned long long begin = now_ns();
		double took;

		submit(l, 0);
		check(vk(WaitForFences)(l->device, 1, l->fence, VK_TRUE, 10000000000ull),
		      "vkWaitForFences");
		took = (double)(now_ns() - begin) / 1e9;
		if (took < TARGET_S * 0.8)
			l->turns =
				(uint32_t)(l->turns * (took < TARGET_S / 8 ? 4 : TARGET_S / took));
	}
	fprintf(stderr, "api_vulkan: %u turns\n", l->turns);
}

int main(int argc, char **argv)
{
	unsigned long long end, next, started = 0, done = 0;
	struct load l = { 0 };
	void *lib;
	FILE *out;

	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: api_vulkan SECONDS OUT [DEVICE]\n");
		return 2;
	}
	lib = dlopen("libvulkan.so.1", RTLD_NOW);
	if (lib)
		instance_function = (PFN_vkGetInstanceProcAddr)dlsym(lib, "vkGetInstanceProcAddr");
	if (!instance_function) {
		fprintf(stderr, "api_vulkan: %s\n", dlerror());
		return 77;
	}
	out = fopen(argv[2], "w");
	if (!out) {
		perror(argv[2]);
		return 1;
	}
	setvbuf(out, NULL, _IOLBF, 0);
	open_device(&l, argc > 3 ? argv[3] : "NVIDIA");
	make_set(&l);
	make_pipeline(&l);
	make_commands(&l);
	calibrate(&l);
	end = now_ns() + (unsigned long long)(atof(argv[1]) * 1e9);
	next = now_ns();
	while (now_ns() < end) {
		unsigned long long t;

		for (; started < done + AHEAD; started++)
			submit(&l, started % AHEAD);
		while (done < started &&
		       vk(GetFenceStatus)(l.device, l.fence[done % AHEAD]) == VK_SUCCESS)
			done++;
		t = now_ns();
		if (t >= next) {
			fprintf(out, "%llu %llu\n", t, done);
			next = t + 5000000;
		}
		usleep(100);
	}
	check(vk(DeviceWaitIdle)(l.device), "vkDeviceWaitIdle");
	fclose(out);
	return 0;
}
