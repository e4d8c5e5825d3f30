"use strict";
const slider = document.getElementById("point");
const frames = Array.from(document.querySelectorAll(".frame"));
function show(point) {
  frames.forEach((frame, k) => {
    frame.hidden = k !== point;
    document.getElementById("dot" + k).classList.toggle("now", k === point);
  });
  slider.value = point;
  slider.setAttribute("aria-valuetext", frames[point].dataset.limit);
  document.getElementById("limit").textContent = frames[point].dataset.limit;
}
function follow() {
  const point = /^#p(\d+)$/.exec(location.hash);
  const known = point !== null && Number(point[1]) < frames.length;
  show(Number(known ? point[1] : slider.dataset.first));
  if (known) document.getElementById("slider").scrollIntoView();
}
document.documentElement.classList.add("js");
document.getElementById("slider").hidden = false;
slider.addEventListener("input", () => show(Number(slider.value)));
addEventListener("hashchange", follow);
follow();
