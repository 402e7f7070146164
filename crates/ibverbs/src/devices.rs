//! The devices of this process: those that are configured, or one for each interface.

use std::ffi::{CStr, c_char, c_int};
use std::net::IpAddr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use userdma_host::cm::{DeviceEntry, Devices};
use userdma_host::{DeviceSpec, DevicesError, Host, HostConfig, Stats};

use crate::answer::{INVALID, Refused, number, pointer, set_errno};
use crate::fork_lock::ForkLock;
use crate::lids::{self, Lids};
use crate::log::{self, Level};
use crate::{abi, explain, hooks, port, settings, trace, ucma};

/// A device of the list. It exists as long as the process: programs compare and keep the pointers.
#[repr(C)]
pub(crate) struct DeviceObject {
    abi: abi::Device,
    /// Provider libraries look for their own table here, and find that this is none of their devices.
    zero: [u64; 16],
    spec: DeviceSpec,
    index: usize,
    guid: [u8; 8],
    /// The one that was listed next.
    next: AtomicPtr<Self>,
    /// The device as this process has it open, shared by all its contexts. To open it takes its time, in which others may fork.
    open: ForkLock<Weak<OpenDevice>>,
}

/// An open device of this process.
pub(crate) struct OpenDevice {
    pub(crate) host: Host,
    /// If programs may address by LIDs.
    pub(crate) lids: Option<Lids>,
}

/// Every device that was ever listed: the first, which leads to the next. The list grows at its end only, without a lock, which a
/// child of `fork` might find taken for ever.
static FIRST: AtomicPtr<DeviceObject> = AtomicPtr::new(std::ptr::null_mut());

/// `ibv_get_device_list`.
pub(crate) unsafe extern "C" fn get_device_list(num_devices: *mut c_int) -> *mut *mut abi::Device {
    pointer(|| {
        let devices = list().inspect_err(|_| {
            if !num_devices.is_null() {
                // SAFETY: the caller's place for the number.
                unsafe { num_devices.write(0) };
            }
        })?;
        hooks::warn_of_unusable();
        // SAFETY: one place more than there are devices; zero is the null pointer that ends the list.
        let list = unsafe { libc::calloc(devices.len() + 1, size_of::<usize>()) }.cast::<*mut abi::Device>();
        if list.is_null() {
            return Err(Refused(libc::ENOMEM));
        }
        for (place, device) in devices.iter().enumerate() {
            // SAFETY: within what was allocated above.
            unsafe { list.add(place).write(*device) };
        }
        if !num_devices.is_null() {
            // SAFETY: the caller's place for the number. There are fewer than 2^31.
            unsafe { num_devices.write(c_int::try_from(devices.len()).unwrap_or(c_int::MAX)) };
        }
        Ok(list)
    })
}

/// The devices that are there now; each is known from now on.
pub(crate) fn list() -> Result<Vec<*mut abi::Device>, Refused> {
    let specs = specs()?;
    let first = hooks::first_free_number();
    Ok(specs.into_iter().map(|spec| known_device(&FIRST, spec, first)).collect())
}

/// How many devices are known.
pub(crate) fn count() -> usize {
    known().count()
}

/// Every device that is known, as [`count`] counts them.
pub(crate) fn views() -> Vec<hooks::View> {
    known().map(|device| device.view()).collect()
}

/// What the device with this name has counted, if this process has it open.
pub(crate) fn stats(name: &str) -> Option<Stats> {
    let device = known().find(|device| device.spec.name == name)?;
    let open = device.open.lock().upgrade()?;
    open.host.stats().ok()
}

fn known() -> impl Iterator<Item = &'static DeviceObject> {
    // SAFETY: null, or a device, all of which live for ever.
    let at = |place: &AtomicPtr<DeviceObject>| unsafe { place.load(Ordering::Acquire).as_ref() };
    std::iter::successors(at(&FIRST), move |device| at(&device.next))
}

/// `ibv_free_device_list`.
pub(crate) unsafe extern "C" fn free_device_list(list: *mut *mut abi::Device) {
    // SAFETY: a list of `get_device_list`, which the caller gives up.
    unsafe { libc::free(list.cast()) };
}

/// `ibv_get_device_name`.
pub(crate) unsafe extern "C" fn get_device_name(device: *mut abi::Device) -> *const c_char {
    // SAFETY: a device of the list.
    unsafe { (&raw const (*device).name).cast() }
}

/// `ibv_get_device_guid`, in network order.
pub(crate) unsafe extern "C" fn get_device_guid(device: *mut abi::Device) -> u64 {
    // SAFETY: a device of the list.
    u64::from_ne_bytes(unsafe { DeviceObject::of(device) }.guid)
}

/// `ibv_get_device_index`: the place among the devices that this process knows.
pub(crate) unsafe extern "C" fn get_device_index(device: *mut abi::Device) -> c_int {
    number(|| {
        let is_it = |known: &DeviceObject| std::ptr::from_ref(known).addr() == device.addr();
        let place = known().position(is_it).ok_or(INVALID)?;
        c_int::try_from(place).map_err(|_| INVALID)
    })
}

/// The GUID of the device with this place in the list, in network order.
pub(crate) fn guid_at(place: usize) -> Option<[u8; 8]> {
    known().nth(place).map(|device| device.guid)
}

/// The devices of this process, for connections.
pub(crate) struct Table;

impl Devices for Table {
    fn list(&self) -> Vec<DeviceEntry> {
        // Looks for new ones. If that fails, those that are known are there still.
        let _ = list();
        known()
            .map(|device| DeviceEntry {
                name: device.spec.name.clone(),
                guid: device.guid,
                addresses: device.spec.addresses.clone(),
            })
            .collect()
    }

    fn open(&self, place: usize) -> Result<Arc<dyn AsRef<Host> + Send + Sync>, i32> {
        let device = known().nth(place).ok_or(libc::ENODEV)?;
        Ok(device.open().map_err(|Refused(errno)| errno)?)
    }
}

impl AsRef<Host> for OpenDevice {
    fn as_ref(&self) -> &Host {
        &self.host
    }
}

impl DeviceObject {
    /// A device whose node has the number `index`.
    fn new(spec: DeviceSpec, index: usize) -> Self {
        let mut abi = abi::Device {
            ops: [0; 2],
            node_type: NODE_CA,
            transport_type: 0,
            name: [0; 64],
            dev_name: [0; 64],
            dev_path: [0; 256],
            ibdev_path: [0; 256],
        };
        put(&mut abi.name, &spec.name);
        put(&mut abi.dev_name, &format!("uverbs{index}"));
        put(&mut abi.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{index}"));
        put(&mut abi.ibdev_path, &format!("/sys/class/infiniband/{}", spec.name));
        let guid = guid(spec.addresses.first().copied().unwrap_or(IpAddr::from([0; 4])));
        Self { abi, zero: [0; 16], spec, index, guid, next: AtomicPtr::default(), open: ForkLock::default() }
    }

    fn view(&self) -> hooks::View {
        let interface = |&ip: &IpAddr| {
            let interface = userdma_link::interface_of(ip, 0).ok().flatten();
            (ip, interface.map(|interface| interface.name))
        };
        let gids = self.spec.addresses.iter().map(interface).collect();
        let lid = Lids::of(&self.spec).map_or(0, Lids::own);
        hooks::View { name: self.spec.name.clone(), number: self.index, guid: self.guid, lid, gids }
    }

    /// The device behind a pointer of the list.
    ///
    /// # Safety
    /// `device` comes from [`get_device_list`].
    pub(crate) unsafe fn of<'a>(device: *mut abi::Device) -> &'a Self {
        // SAFETY: each device of the list is the start of a `DeviceObject` that lives for ever.
        unsafe { &*device.cast::<Self>() }
    }

    pub(crate) fn guid(&self) -> [u8; 8] {
        self.guid
    }

    /// Opens the device, or shares it with those of this process who have it open.
    pub(crate) fn open(&self) -> Result<Arc<OpenDevice>, Refused> {
        let mut open = self.open.lock();
        if let Some(device) = open.upgrade().filter(|device| device.host.check().is_ok()) {
            return Ok(device);
        }
        let device = Arc::new(OpenDevice { host: self.open_host()?, lids: Lids::of(&self.spec) });
        *open = Arc::downgrade(&device);
        Ok(device)
    }

    fn open_host(&self) -> Result<Host, Refused> {
        trace::install();
        let complain = |what: String| {
            log::tell(Level::Error, format_args!("device {}: {what}", self.spec.name));
            INVALID.because(|| what)
        };
        let capture = settings::capture().map_err(complain)?;
        let config = port::choose(HostConfig {
            addresses: self.spec.addresses.clone(),
            mtu: self.spec.mtu,
            max_window: self.spec.max_window,
            recv_buffer: self.spec.recv_buffer,
            faults: settings::faults().map_err(complain)?,
            ..HostConfig::default()
        })?;
        let host = Host::open(&config).map_err(|error| error_of(&self.spec.name, error))?;
        port::warn(&self.spec.name, &host);
        if let Some(capture) = capture {
            host.attach_capture(&capture).map_err(|error| complain(error.to_string()))?;
        }
        explain::tell_device(&self.spec.name, &host);
        Ok(host)
    }
}

impl Drop for OpenDevice {
    /// Nobody drives it any more, so nobody else would see to its last packets.
    fn drop(&mut self) {
        settings::flush_capture();
    }
}

/// Says why a device cannot be opened: verbs programs only print what the number stands for.
fn error_of(name: &str, error: userdma_host::OpenError) -> userdma_host::OpenError {
    log::tell(Level::Error, format_args!("device {name}: {error}"));
    error
}

/// The device for `spec`: the one that was listed before, or a new one at the end of the list that begins at `place`.
fn known_device(place: &AtomicPtr<DeviceObject>, spec: DeviceSpec, number: usize) -> *mut abi::Device {
    let mut found = place.load(Ordering::Acquire);
    if found.is_null() {
        let new = Box::into_raw(Box::new(DeviceObject::new(spec.clone(), number)));
        match place.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return new.cast(),
            Err(faster) => {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                found = faster;
            }
        }
    }
    // SAFETY: devices live for ever.
    let device = unsafe { &*found };
    if device.spec == spec { found.cast() } else { known_device(&device.next, spec, number + 1) }
}

fn specs() -> Result<Vec<DeviceSpec>, Refused> {
    let specs = userdma_host::configured().map_err(|error| {
        log::tell(Level::Error, format_args!("devices: {error}"));
        match error {
            DevicesError::Interfaces(source) => Refused(source.raw_os_error().unwrap_or(libc::EIO)),
            DevicesError::Word { .. } | DevicesError::File(_) | _ => INVALID,
        }
    })?;
    lids::given(specs)
}

/// An identifier of 8 bytes that differs between addresses: locally administered, with the IPv4 address in it, or a hash of
/// the IPv6 address.
fn guid(address: IpAddr) -> [u8; 8] {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            [0x02, 0, a, 0xff, 0xfe, b, c, d]
        }
        IpAddr::V6(v6) => {
            // Fowler, Noll and Vo's hash.
            let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            let [_, b, c, d, e, f, g, h] = v6.octets().iter().fold(0xcbf2_9ce4_8422_2325, fold).to_be_bytes();
            [0x06, b, c, d, e, f, g, h]
        }
    }
}

/// Copies a text into a C array; what does not fit is cut.
pub(crate) fn put<const N: usize>(array: &mut [c_char; N], text: &str) {
    for (place, byte) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *place = byte.cast_signed();
    }
}

/// `ibv_read_sysfs_file`: the first bytes of a file, without the newline at its end; their number.
pub(crate) unsafe extern "C" fn read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller gives two strings.
    let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
    // Which version of the connection manager's commands there is, only librdmacm asks, and only in this way.
    let own = (dir == SYSFS && file == c"class/misc/rdma_cm/abi_version").then(|| ucma::ABI_VERSION.into());
    let path = format!("{}/{}", dir.to_string_lossy(), file.to_string_lossy());
    let Some(mut bytes) = own.or_else(|| std::fs::read(path).ok()) else {
        set_errno(Refused(libc::ENOENT));
        return -1;
    };
    bytes.truncate(size);
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    // SAFETY: at most `size` bytes, which the caller has room for; and a terminator if there is room for one.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast(), bytes.len());
        if bytes.len() < size {
            buf.add(bytes.len()).write(0);
        }
    }
    c_int::try_from(bytes.len()).unwrap_or(c_int::MAX)
}

/// `ibv_get_sysfs_path`.
pub(crate) extern "C" fn get_sysfs_path() -> *const c_char {
    SYSFS.as_ptr()
}

/// A panic while one of these locks is held leaves a table whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const SYSFS: &CStr = c"/sys";
/// `IBV_NODE_CA`.
const NODE_CA: c_int = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_identifiers_of_their_own() {
        let of = |ip: &str| guid(ip.parse().unwrap());
        assert_eq!(of("10.1.2.3"), [0x02, 0, 10, 0xff, 0xfe, 1, 2, 3]);
        assert_eq!(of("10.1.2.3"), of("::ffff:10.1.2.3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8::2"));
    }

    #[test]
    fn a_device_is_listed_once_behind_those_before() {
        let list = AtomicPtr::default();
        let spec = |name: &str| DeviceSpec {
            name: name.to_owned(),
            addresses: vec![IpAddr::from([127, 0, 0, 1])],
            mtu: None,
            max_window: None,
            recv_buffer: None,
            lids: false,
        };
        let [a, b] = ["one", "two"].map(spec);
        let first = known_device(&list, a.clone(), 5);
        let second = known_device(&list, b.clone(), 5);
        assert_eq!((known_device(&list, a, 5), known_device(&list, b, 5)), (first, second));
        // SAFETY: made above.
        let indices = [first, second].map(|device| unsafe { DeviceObject::of(device) }.index);
        assert_eq!(indices, [5, 6]);
    }
}
